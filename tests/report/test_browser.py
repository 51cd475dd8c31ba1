"""The pages in a real browser, opened from disk: no error, no request, usable by keyboard, on a phone and on paper."""

import base64
import os
import re
import shutil
from importlib.resources import files

import pytest
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from bolt.cohort.quality import excluded_by_eye
from bolt.report.html import PAGES
from tests.conftest import leave_empty
from tests.report.conftest import write_all
from tests.report.pages.test_quality import make_pages

DRIVER = shutil.which("chromedriver")
NO_DRIVER = "chromedriver is missing (Debian: apt install chromium-driver)"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(DRIVER is None, reason=NO_DRIVER)]
AXE = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
QUESTIONS = tuple(file.removesuffix(".html") for file in PAGES)
ALL = (*QUESTIONS, "scans", "subject", "tested subject")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasPdf, "print_pdf", leave_empty)
        whole = write_all(tmp_path_factory.mktemp("whole"))
    layout = make_pages(tmp_path_factory.mktemp("quality"), 30).layout
    made = {name: whole / f"{name}.html" for name in QUESTIONS}
    known = whole.parent / "subjects/sub-00.html"
    return made | {"scans": layout.quality_page, "subject": layout.subjects / "sub-9.html", "tested subject": known}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    for flag in ("disable-gpu", "disable-software-rasterizer"):  # an imitated GPU is slower than none
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    os.environ.setdefault("SE_OFFLINE", "true")
    chrome = Chrome(options, Service(DRIVER))
    chrome.downloads = downloads
    yield chrome
    chrome.quit()


def set_width(browser, width):
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def visit(browser, page):
    set_width(browser, 1400)
    browser.get(page.as_uri())


@pytest.fixture(scope="class", params=ALL)
def messages(browser, pages, request):
    """Open a page once for all questions, and return what the browser has to say about it."""
    browser.get_log("browser"), browser.get_log("performance")
    visit(browser, pages[request.param])
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    return {"errors": errors, "performance": [entry["message"] for entry in browser.get_log("performance")]}


class TestEveryPage:
    """Each question sets the width it needs."""

    def test_it_opens_without_an_error_or_a_request(self, browser, messages):
        assert browser.find_element(By.TAG_NAME, "h1").text
        assert messages["errors"] == []
        asked = re.findall(r'"url":"([a-z]+)://', "".join(messages["performance"]))
        assert asked and set(asked) <= {"file"}

    @pytest.mark.usefixtures("messages")
    @pytest.mark.parametrize("width", [400, 1400])
    def test_nothing_is_wider_than_the_screen(self, browser, width):
        set_width(browser, width)
        wide = browser.execute_script(
            "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll *, svg *, nav') && "
            "!e.classList.contains('unseen') && e.getBoundingClientRect().right > innerWidth + 1)"
            ".map(e => e.tagName + '.' + e.className + ' ' + Math.round(e.getBoundingClientRect().right))"
        )
        assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width, wide[:5]

    @pytest.mark.usefixtures("messages")
    def test_accessibility(self, browser):
        """Contrast, labels, headings and roles (axe-core, WCAG 2.1 A and AA)."""
        set_width(browser, 1400)
        browser.execute_script(AXE)
        found = browser.execute_async_script(  # brains in frames are nilearn's pages
            "const done = arguments[0], levels = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'];"
            "axe.run(document, {iframes: false, runOnly: levels})"
            ".then(results => done(results.violations))"
        )
        assert [(v["id"], v["nodes"][0]["html"][:150]) for v in found] == []

    @pytest.mark.usefixtures("messages")
    def test_everything_is_on_paper(self, browser):
        """Printed pages are as wide as paper, and rows that the screen hides at first are there."""
        set_width(browser, 1400)
        printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
        assert base64.b64decode(printed["data"]).startswith(b"%PDF")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        try:
            for selector, paper in (("figure.table:not(.wide)", 720), ("figure.table.wide", 1020)):
                set_width(browser, paper)  # px of A4 inside margins
                widths = browser.execute_script(
                    f"return [...document.querySelectorAll('{selector} table')]"
                    ".map(t => t.getBoundingClientRect().right)"
                )
                assert all(right <= paper for right in widths), widths
            rows = "[...document.querySelectorAll('tbody tr')]"
            hidden = browser.execute_script(f"return {rows}.filter(r => getComputedStyle(r).display == 'none').length")
            assert hidden == 0
        finally:
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def rows(browser, table):
    shown = f"[...document.querySelectorAll('{table} tbody tr')].filter(row => row.checkVisibility())"
    return browser.execute_script(f"return {shown}.map(row => row.querySelector('td').innerText)")


def test_a_table_is_sorted_filtered_and_shown_whole_by_keyboard(browser, pages):
    visit(browser, pages["scans"])
    scans = "#scans figure.table"
    assert len(rows(browser, scans)) == 12
    whole = browser.find_element(By.XPATH, "//section[@id='scans']//button[starts-with(., 'Show all 30 rows')]")
    whole.send_keys(Keys.ENTER)
    assert len(rows(browser, scans)) == 30 and not whole.is_displayed()
    by_motion = browser.find_element(By.XPATH, "//section[@id='scans']//th/button[starts-with(., 'mean FD')]")
    by_motion.send_keys(Keys.SPACE)
    assert rows(browser, scans)[-1] == "sub-5_task-rest" or "sub-7" in rows(browser, scans)[-1]
    by_motion.send_keys(Keys.ENTER)
    assert rows(browser, scans)[0] == "sub-5_task-rest"  # 0.7 mm
    filter_rows = browser.find_element(By.CSS_SELECTOR, f"{scans} input")
    filter_rows.send_keys("sub-12")
    assert rows(browser, scans) == ["sub-12_task-rest"]
    assert browser.find_element(By.CSS_SELECTOR, f"{scans} [role=status]").text == "1 of 30 rows"


def saved(browser, name, before=frozenset()):
    """Wait for a file that a page saves, besides those `before`."""
    for _ in range(100):
        if made := set(browser.downloads.glob(name)) - before:
            return made.pop()
        browser.execute_async_script("setTimeout(arguments[0], 100)")
    return pytest.fail(f"{name} was not saved")


def test_a_table_is_saved_as_tsv_as_it_is_filtered(browser, pages):
    visit(browser, pages["scans"])
    browser.find_element(By.CSS_SELECTOR, "#scans input").send_keys("sub-2")
    before = set(browser.downloads.iterdir())
    browser.find_element(By.XPATH, "//section[@id='scans']//button[. = 'Save as TSV']").send_keys(Keys.ENTER)
    head, *lines = saved(browser, "*.tsv", before).read_text().splitlines()
    assert head.startswith("scan\tstate\tlook at\t")
    assert [line.split("\t")[0] for line in lines] == [f"sub-{i}_task-rest" for i in (2, *range(20, 30))]


def test_anchors_open_the_row_they_lead_to(browser, pages):
    visit(browser, pages["scans"])
    browser.get(pages["scans"].as_uri() + "#sub-29_task-rest")
    assert browser.find_element(By.ID, "sub-29_task-rest").is_displayed()


def test_scans_are_rated_by_keyboard_and_saved_for_the_configuration(browser, pages):
    visit(browser, pages["subject"])
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("e")
    body.send_keys("n")
    browser.switch_to.active_element.send_keys("ringing, see slice 12")
    visit(browser, pages["scans"])  # another page, the same browser
    place = browser.find_element(By.CSS_SELECTOR, "[data-rate=sub-9_task-rest]")
    fields = [place.find_element(By.TAG_NAME, name) for name in ("select", "input")]
    assert [field.get_property("value") for field in fields] == ["exclude", "ringing, see slice 12"]
    browser.find_element(By.CSS_SELECTOR, "[data-rate=sub-0_task-rest] select").send_keys("keep")
    browser.find_element(By.ID, "save-ratings").send_keys(Keys.ENTER)
    file = saved(browser, "ratings.tsv")
    assert excluded_by_eye(file) == {"sub-9_task-rest": ": ringing, see slice 12"}
    assert "sub-0_task-rest\tkeep\tn/a" in file.read_text()


def test_arrows_lead_from_one_person_to_the_next_worth_a_look(browser, pages):
    visit(browser, pages["subject"].with_name("sub-7.html"))  # failed: the first
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.TAG_NAME, "h1").text == "sub-3"  # excluded
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_LEFT)
    assert browser.find_element(By.TAG_NAME, "h1").text == "sub-7"
