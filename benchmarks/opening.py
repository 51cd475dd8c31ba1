"""Measure how long pages of a report take to open in Chromium.

    python -m benchmarks.scale --folder /tmp/scale --sizes 1000 --keep
    python -m benchmarks.opening /tmp/scale/1000/results/NAME/report

Prints the median over `REPEATS` openings, from the start of the navigation to the end of the load event.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

REPEATS = 5
LOADED = "const [page] = performance.getEntriesByType('navigation'); return page.loadEventEnd"


@contextmanager
def browser() -> Iterator[Chrome]:
    """Start Chromium without a window."""
    options = ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-gpu"):
        options.add_argument(f"--{flag}")
    chrome = Chrome(options, Service(shutil.which("chromedriver")))
    try:
        yield chrome
    finally:
        chrome.quit()


def opening(chrome: Chrome, page: Path) -> float:
    """Open a page several times; return the median in milliseconds."""
    times = []
    for _ in range(REPEATS):
        chrome.get(page.as_uri())
        times.append(float(chrome.execute_script(LOADED)))
    return median(times)


def main() -> None:
    """Print a row per page: size and time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="folder with index.html")
    report = parser.parse_args().report.resolve()
    subjects = sorted((report.parent / "subjects").glob("*.html"))
    with browser() as chrome:
        for page in [*sorted(report.glob("*.html")), *subjects[:1]]:
            print(f"{page.name}: {page.stat().st_size / 1e6:.2f} MB, {opening(chrome, page):.0f} ms")


if __name__ == "__main__":
    main()
