"""The recipes of the images: what they copy exists and is all that is needed, and they install what the locks say."""

import os
import re
import subprocess
import tomllib

import pytest

from bolt.config import ROOT

FOLDER = ROOT / "workflow/containers"
DOCKER = (FOLDER / "Dockerfile").read_text()
_PARTS = re.split(r"^%(\w+)$", "%header\n" + (FOLDER / "bolt.def").read_text(), flags=re.MULTILINE)[1:]
SECTIONS = dict(zip(_PARTS[::2], _PARTS[1::2], strict=True))
"""Sections of the Apptainer definition, by name; its header is `header`."""


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKER, re.MULTILINE)


def docker_copies() -> dict[str, str]:
    """What is copied, and where to; a folder at the end of the list takes several files."""
    found = {}
    for words in map(str.split, instructions("COPY")):
        *sources, target = words
        found |= {source: target + source if target.endswith("/") else target for source in sources}
    return found


def test_both_images_hold_the_same_files_at_the_same_places_all_that_is_run_and_what_is_installed():
    """All that the Makefile's installation names, and all that the Snakefile and the package read."""
    assert docker_copies() == dict(line.split() for line in SECTIONS["files"].splitlines() if line.strip())
    assert all(target == f"/opt/bolt/{source}" for source, target in docker_copies().items())
    assert all((ROOT / source).exists() for source in docker_copies())
    copied, project = set(docker_copies()), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rule = re.search(r"^\$\(VENV\)/\.installed: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    needed = {"Makefile", project["readme"], *rule.split(), "Snakefile", "bolt", "config", "atlases", "workflow"}
    assert copied >= needed
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {source.name for line in lines if line.startswith("!") for source in ROOT.glob(line[1:])}
    assert "*" in lines and copied == kept


def test_both_images_begin_with_the_python_of_the_conda_environments_and_run_one_script_as_a_normal_user():
    (base,) = instructions("FROM")
    assert re.search(r"^Bootstrap: docker\nFrom: (.+)$", SECTIONS["header"], re.MULTILINE)[1] == base
    version = re.fullmatch(r"python:(3\.\d+)-slim-\w+", base)[1]
    assert f"python={version}" in (ROOT / "environment.yml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"].startswith(f">={version}")
    script = "sh /opt/bolt/workflow/containers/install.sh"
    assert instructions("RUN")[0] == script and script in SECTIONS["post"]
    assert instructions("ARG") == [SECTIONS["arguments"].strip().replace("torch_index", "TORCH_INDEX")]
    assert instructions("USER") == ["bolt"] and DOCKER.index("USER bolt") > DOCKER.index(script)
    assert "export PATH=/opt/venv/bin:$PATH" in SECTIONS["environment"]
    assert instructions("ENV")[0].startswith("PATH=/opt/venv/bin:$PATH ")


def test_the_script_installs_the_locked_packages():
    script = (FOLDER / "install.sh").read_text()
    command = re.search(r"make install .*", script)[0]
    assert "VENV=/opt/venv" in command
    assert f"ln -sfn {os.readlink(ROOT / 'profiles')} profiles" in script  # links are not copied
    make = ["make", "--dry-run", *command.replace('"$TORCH_INDEX"', "https://index.example/cpu").split()[1:]]
    clean = {"PATH": os.environ["PATH"]}  # not what a `make test` around this hands down
    done = subprocess.check_output(make, cwd=ROOT, env=clean, text=True)
    assert "--require-hashes --no-deps -r requirements.txt\n" in done and "requirements-test.txt" not in done
    assert "--index-url https://index.example/cpu -r requirements-torch.txt\n" in done


def test_shell_lines_are_shell():
    scripts = [*instructions("RUN"), *(SECTIONS[name] for name in ("post", "environment", "runscript", "test"))]
    for text in [*scripts, (FOLDER / "install.sh").read_text()]:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


RUN = {"": "bolt run --help", "./data /out participant": "bolt run ./data /out participant"}
RUN |= {"--version": "bolt run --version", "snakemake --cores 2": "snakemake --cores 2", "bolt check": "bolt check"}


@pytest.mark.parametrize(("arguments", "run"), RUN.items())
def test_the_image_is_a_bids_app_and_runs_other_commands(tmp_path, arguments, run):
    for name in ("bolt", "snakemake"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$(basename "$0") $@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "data").mkdir()
    command = ["/bin/sh", str(FOLDER / "entrypoint.sh"), *arguments.split()]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.check_output(command, env=environment, cwd=tmp_path, text=True).strip() == run
    for recipe in (DOCKER, SECTIONS["runscript"]):
        assert "/opt/bolt/workflow/containers/entrypoint.sh" in recipe
