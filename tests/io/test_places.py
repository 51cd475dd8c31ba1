"""Where a copy of BolT is, installed or cloned; two copies are never mixed."""

import os
import subprocess
import sys
import tempfile
from unittest.mock import Mock

import pytest

from bolt.cli.main import main
from bolt.io import places
from bolt.io.errors import ConfigError
from bolt.workflow.start import shell_prefix


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installed package, whose folder holds the project's."""
    package = tmp_path / "site-packages/bolt"
    (package / "_project").mkdir(parents=True)
    (package / "here.py").write_text("")
    monkeypatch.setattr(places, "PACKAGE", package)
    monkeypatch.setattr(places, "INSTALLED", package / "_project")
    monkeypatch.setattr(places, "ROOT", package / "_project")
    return package


def test_jobs_import_the_clone(tmp_path):
    assert (places.ROOT / "Snakefile").is_file() and not places.INSTALLED.exists()
    assert f"PYTHONPATH={places.ROOT} BOLT_PACKAGE={places.PACKAGE} " in shell_prefix(tmp_path)
    places.link_package(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_jobs_of_an_installed_package_import_it_and_nothing_beside_it(tmp_path, installed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "my work"
    assert f"PYTHONPATH='{work}/code' " in shell_prefix(work.relative_to(tmp_path))
    for target in (None, tmp_path / "an earlier version", installed):
        if target is not None:
            (work / "code/bolt").unlink()
            (work / "code/bolt").symlink_to(target)
        places.link_package(work)
        assert (work / "code/bolt").resolve() == installed
    assert [path.name for path in (work / "code").iterdir()] == ["bolt"]
    code = "import bolt.here; print(bolt.__path__[0])"
    env = os.environ | {"PYTHONPATH": str(work / "code")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == str(work / "code/bolt"), done.stderr


def test_downloads_stay_in_a_clone_and_never_go_into_an_installed_package(tmp_path, installed, monkeypatch):
    own, shipped = tmp_path / "atlases/mine", installed / "_project/atlases/aal116"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert places.folder_for_downloads(own) == own
    assert places.folder_for_downloads(shipped) == tmp_path / "cache/bolt/atlases/aal116"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places.folder_for_downloads(shipped) == tmp_path / ".cache/bolt/atlases/aal116"


def test_a_job_planned_by_another_copy_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(places.PLANNED_BY, str(tmp_path / "bolt"))
    assert main(["where"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bolt where: {places.PACKAGE}: ") and str(tmp_path / "bolt") in line
    (tmp_path / "bolt").symlink_to(places.PACKAGE)  # the same copy by another name
    assert main(["where"]) == 0
    assert capsys.readouterr().out.strip() == str(places.ROOT)


def test_a_snakefile_of_another_copy_is_refused(tmp_path):
    places.refuse_other_snakefile(str(places.ROOT))
    refused = f"^bolt: {tmp_path}/Snakefile: .*--snakefile {places.ROOT}/Snakefile"
    with pytest.raises(SystemExit, match=refused) as refusal:
        places.refuse_other_snakefile(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_cache_that_cannot_be_written_moves_to_the_work_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    places.use_writable_folders(tmp_path / "work")
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / "cache") and not list((tmp_path / "cache").iterdir())
    assert os.path.isdir(os.environ["TMPDIR"])  # the next that takes a file
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    places.use_writable_folders(tmp_path / "work")
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path / "work/cache")


def test_temporary_files_need_some_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", Mock(side_effect=FileNotFoundError(2, "No usable temporary directory")))
    with pytest.raises(ConfigError, match="No usable temporary directory. Set TMPDIR to a folder with space"):
        places.use_writable_folders(tmp_path)
