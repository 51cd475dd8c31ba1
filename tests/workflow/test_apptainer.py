"""`--sdm apptainer`: every job runs in the configured image, with this checkout's code."""

import os
import sys
from pathlib import Path

import pytest

from bolt.config import Config, parse
from bolt.io.errors import ConfigError
from tests.snake import results, series_dataset, snakemake

APPTAINER = """#!{python}
# An apptainer whose image is a folder that holds a Python; PATH within is the image's, as in a real one.
import os, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("apptainer version 1.4.1")
    sys.exit()
image = next(word for word in words if word.endswith(".sif"))
with open("{calls}", "a") as calls:
    print(*words, file=calls)
os.environ["PATH"] = image + "/bin:/usr/bin:/bin"
os.execvp("bash", words[words.index(image) + 1:])
"""


def programme(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.slow
def test_jobs_run_in_the_configured_image(tmp_path):
    image, calls = tmp_path / "bolt.sif", tmp_path / "calls"
    programme(image / "bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    programme(tmp_path / "host/apptainer", APPTAINER.format(python=sys.executable, calls=calls))
    config = series_dataset(tmp_path, container=str(image))
    path = {"PATH": f"{tmp_path / 'host'}{os.pathsep}{os.environ['PATH']}"}
    asked = ("--sdm", "apptainer", "--apptainer-args=--nv")
    done = snakemake(tmp_path, *asked, "results/mine/scans.tsv", config=config, env=path, fresh=True)
    assert done.returncode == 0, done.stdout
    assert len(results(tmp_path, "scans.tsv")) == 1
    (line,) = [line for line in calls.read_text().splitlines() if "-m bolt index" in line]
    assert " --nv " in line and f" {image} bash -c " in line


@pytest.mark.parametrize("name", ["bolt.sif; rm -rf /", "$(id)", "docker://x y"])
def test_an_image_that_is_none_is_refused(name):
    """Its name stands in a shell command of Snakemake's."""
    with pytest.raises(ConfigError, match="container"):
        parse(Config, {"dataset": "phantom", "container": name}, "configuration")
