"""A whole run on hostile tables, with secrets about: no shell meets the ones, no file keeps the others."""

import html
import re

import pandas as pd
import pytest

from tests.snake import QUICK_EXPLANATION, series_dataset, snakemake, write_yaml

pytestmark = pytest.mark.slow

SECRET = "kanarienvogel"
TAG = "<script>alert(1)</script>"
HOSTILE = [
    "../../x",
    "a;touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "--config",
    "'\"",
    "{scan}",
    TAG,
    "ä b",
    "x" * 99,
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("safety") / "here"
    config = series_dataset(folder, explain=QUICK_EXPLANATION, folds={"outer": 3, "run": [0]})
    table = pd.read_csv(folder / "series/scans.tsv", sep="\t")
    table["scan_id"] = table.subject
    table["subject"] = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(len(table))]
    table["where"] = [HOSTILE[i % 3] for i in range(len(table))]
    table["dx"] = [(TAG, "$(touch pwned)")[i % 2] for i in range(len(table))]
    outside = folder.parent / "inputs"
    (folder / "series").rename(outside)
    table["file"] = [str(outside / name) for name in table.file]
    row = table.iloc[0].copy()
    row["scan_id"] = "$(touch pwned)"
    (folder / "series").mkdir()
    pd.concat([table, row.to_frame().T]).to_csv(folder / "series/scans.tsv", sep="\t", index=False)
    data = {"source": "series", "path": "series/scans.tsv", "label": "dx", "classes": [TAG, "$(touch pwned)"]}
    data |= {"site": "where", "age": "age", "tr": 2.0, "crop": 30, "description": TAG}
    write_yaml(folder / "mine.yaml", data)
    home = folder.parent / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id = {SECRET}\naws_secret_access_key = {SECRET}\n"
    )
    env = {"HOME": str(home), "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": SECRET}
    env |= {"https_proxy": f"http://me:{SECRET}@127.0.0.1:9", "BOLT_TEST_PASSWORD": SECRET}
    return folder, snakemake(folder, config=config, env=env)


def test_nothing_reached_a_shell_or_left_the_folder(run):
    folder, done = run
    assert done.returncode == 0, done.stdout
    assert not list(folder.parent.rglob("pwned*"))
    assert sorted(path.name for path in folder.parent.iterdir()) == ["here", "home", "inputs"]
    made = {path.name for path in folder.iterdir()}
    assert made == {"series", "mine.yaml", "tiny.yaml", "config.yaml", "results", "work", ".snakemake"}
    excluded = (folder / "results/mine/exclusions.tsv").read_text()
    assert "cannot be used in file names and commands" in excluded


def test_pages_show_tags_as_text(run):
    folder, _ = run
    pages = sorted((folder / "results").rglob("*.html"))
    assert pages
    shown = "".join(page.read_text() for page in pages)
    assert TAG not in shown and html.escape(TAG) in shown


def test_no_file_keeps_a_secret(run):
    folder, done = run
    told = [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not told
    assert not re.search(SECRET, done.stdout)
