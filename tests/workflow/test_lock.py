"""One run a folder: a second one stops and says whose it is; what a dead one left does not stand in the way."""

import contextlib
import errno
import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from bolt.workflow import lock
from bolt.workflow.lock import JOB, NAME, hold, myself, wait_for_job
from tests.snake import series_dataset, snakemake

RUN = ["snakemake", "--cores", "2"]
FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def none_held():
    yield
    for path in list(lock._held):
        lock._release(path, os.getpid())


@contextlib.contextmanager
def another(*folders):
    """A process that holds folders."""
    held = FORK.Event()

    def work():
        hold(map(Path, folders), ["snakemake"])
        held.set()
        time.sleep(3600)

    process = FORK.Process(target=work)
    process.start()
    try:
        assert held.wait(120)
        yield process
    finally:
        end(process)


def end(process):
    process.kill()
    process.join()


def note(folder, **facts):
    """What a run that is gone left in a folder."""
    (folder / NAME).write_text(json.dumps(myself() | facts))


def locked(path, how):
    """A file that this process holds past `bolt.workflow.lock`."""
    file = path.open("a+")
    fcntl.flock(file, how)
    return file


def refusal(folder):
    with pytest.raises(SystemExit) as stopped:
        hold([folder], RUN)
    return str(stopped.value)


def test_a_second_run_says_whose_the_first_is_and_who_only_looks_may_come_in(tmp_path):
    mine, theirs, link = (tmp_path / name for name in ("results", "work", "link"))
    link.symlink_to(mine)
    with another(mine, theirs) as first:
        for folder in (mine, theirs, link):
            said = refusal(folder)
            assert f"bolt: {folder.resolve()}: another run is active here: " in said
            assert f"process {first.pid}, since 20" in said and os.uname().nodename in said
            assert f"'kill {first.pid}'" in said and "\n" not in said
        hold([tmp_path / "other"], RUN)
        for looking in ("-n", "--dry-run", "--unlock", "--summary", "--target-jobs", "--report=page.html"):
            hold([mine, tmp_path / "new"], [*RUN, looking])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_run_left_is_no_hindrance(tmp_path, how, capsys):
    with another(tmp_path) as first:
        os.kill(first.pid, how)
        first.join()
    assert (tmp_path / NAME).is_file()
    hold([tmp_path], RUN)
    assert f"resuming after an interrupted run: {myself()['user']}" in capsys.readouterr().err
    assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def test_a_run_that_ends_leaves_nothing(tmp_path):
    code = "import sys; from pathlib import Path; from bolt.workflow.lock import hold; hold([Path(sys.argv[1])], [])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("torn", ["", '{"user": "a', "[]", '{"pid": 1}'])
def test_a_torn_note_is_nobodys(tmp_path, torn):
    (tmp_path / NAME).write_text(torn)
    hold([tmp_path], RUN)


def test_another_hosts_run_is_never_taken_for_dead(tmp_path):
    note(tmp_path, host="login7", pid=4711)
    said = refusal(tmp_path)
    assert "on login7 (process 4711" in said
    assert f"or 'ssh login7 ps -p 4711' finds nothing, delete {tmp_path / NAME}" in said
    (tmp_path / NAME).unlink()
    hold([tmp_path], RUN)


def test_without_locks_of_the_file_system_the_process_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.EIO, "no lock")))
    with pytest.raises(OSError, match="no lock"):  # any other error of the disk is shown
        hold([tmp_path], RUN)
    fcntl.flock.side_effect = OSError(errno.ENOLCK, "no lock")
    note(tmp_path, pid=os.getppid())
    assert f"process {os.getppid()}" in refusal(tmp_path)
    gone = subprocess.Popen(["true"])
    gone.wait()
    note(tmp_path, pid=gone.pid)
    hold([tmp_path], RUN)


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_that_is_just_ending_is_waited_for(tmp_path, shared):
    timer = threading.Timer(0.1, locked(tmp_path / NAME, fcntl.LOCK_EX).close)
    timer.start()
    lock._hold_one(tmp_path, shared=shared)
    timer.join()
    assert tmp_path / NAME in lock._held


def test_runs_of_participants_share_a_folder_and_keep_others_out(tmp_path, monkeypatch):
    first = locked(tmp_path / NAME, fcntl.LOCK_SH)
    monkeypatch.setenv(lock.SHARED, "1")
    hold([tmp_path], RUN)
    assert not lock.is_alone(tmp_path) and locked(tmp_path / NAME, fcntl.LOCK_SH)
    lock._release(tmp_path / NAME, os.getpid())
    assert (tmp_path / NAME).exists(), "the first run still uses it"
    monkeypatch.delenv(lock.SHARED)
    assert "another run is active here" in refusal(tmp_path)
    first.close()
    with monkeypatch.context() as shared:
        shared.setenv(lock.SHARED, "1")
        hold([tmp_path], RUN)
        assert lock.is_alone(tmp_path)
        lock._release(tmp_path / NAME, os.getpid())
    hold([tmp_path], RUN)


# ---- jobs ------------------------------------------------------------------------------------------
def work_on(log, seconds, forks=False, env=True):
    """Be a job of the workflow, which works for some seconds; its output is in its log."""
    at_exit = []  # functions of this process, not those of the one that was forked
    lock.atexit = SimpleNamespace(register=lambda *call: at_exit.append(call))
    with Path(log).open("a") as file:
        os.dup2(file.fileno(), 1)
    if env:
        os.environ[JOB] = "1"
    wait_for_job()
    if forks:
        os.fork()
    os.write(1, b"at work\n")
    time.sleep(seconds)
    for function, *arguments in at_exit:
        function(*arguments)


@pytest.fixture
def start(tmp_path):
    """Start a job of the workflow, with the options of `work_on`; its output is in `job.log`."""
    processes = []

    def begin(seconds, log="job.log", **options):
        processes.append(FORK.Process(target=work_on, args=(tmp_path / log, seconds), kwargs=options))
        processes[-1].start()
        return processes[-1]

    yield begin
    for process in processes:
        end(process)


def at_work(log, times):
    """Wait until so many have begun."""
    while not log.exists() or log.read_text().count("at work") < times:
        time.sleep(0.02)


def ended(process):
    process.join(120)
    return process.exitcode == 0


def test_a_job_waits_for_the_one_that_a_killed_run_left(tmp_path, start):
    """Also where that works in a fork, as the last attempt does. Snakemake removes the log of a job that it starts."""
    log = tmp_path / "job.log"
    left = start(60, forks=True)
    at_work(log, 2)
    (child,) = psutil.Process(left.pid).children()
    end(left)
    log.unlink()
    again = start(60)
    time.sleep(0.5)
    assert again.is_alive() and not log.read_text()
    child.kill()
    at_work(log, 1)
    log.unlink()
    third = start(0)
    end(again)
    assert ended(third) and "at work" in log.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["job.log"]


def test_by_hand_or_into_another_file_than_a_log_nobody_waits(tmp_path, start):
    file = locked(tmp_path / "job.lock", fcntl.LOCK_EX)
    assert ended(start(0, env=False)) and ended(start(0, "job.out"))
    file.close()


@pytest.mark.slow
def test_a_second_snakemake_stops_and_a_dry_run_does_not(tmp_path):
    mine = tmp_path / "mine"
    config = series_dataset(mine)
    with another(mine / "results/mine") as first:
        second = snakemake(mine, config=config)
        said = second.stdout.strip().splitlines()[-1]
        assert second.returncode == 1 and said.startswith(f"bolt: {mine}/results/mine: another run is active here: ")
        assert f"process {first.pid}" in said and "unlock" not in second.stdout
        assert snakemake(mine, "-n", config=config).returncode == 0
    done = snakemake(mine, "results/mine/scans.tsv", config=config)  # killed: nobody needs to unlock anything
    assert done.returncode == 0 and "resuming after an interrupted run" in done.stdout
    assert not list((mine / "results").rglob(".running.json"))
