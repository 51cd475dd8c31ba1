"""One run a folder: a second one stops and says whose it is; what a dead one left does not stand in the way."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import psutil
import pytest

from bolt.workflow import lock
from bolt.workflow.lock import JOB, NAME, Owner, hold

RUN = ["snakemake", "--cores", "2"]
HOLDER = """
import sys, time
from pathlib import Path
from bolt.workflow.lock import hold
hold([Path(one) for one in sys.argv[1:]], ["snakemake"])
print("held", flush=True)
time.sleep(3600)
"""


@contextlib.contextmanager
def another(*folders):
    """A process that holds folders."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, *map(str, folders)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def none_held():
    yield
    for path in list(lock._held):
        lock._release(path, os.getpid())


def note(folder, **facts):
    """What a run that is gone left in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_text(json.dumps(asdict(replace(Owner.myself(), **facts))))


def refusal(*folders):
    with pytest.raises(SystemExit) as stopped:
        hold(folders, RUN)
    return str(stopped.value)


def test_a_second_run_says_whose_the_first_is(tmp_path):
    mine, theirs = tmp_path / "results", tmp_path / "work"
    with another(mine, theirs) as first:
        for folder in (mine, theirs):
            said = refusal(folder)
            assert f"bolt: {folder}: another run is active here: " in said
            assert f"process {first.pid}, since 20" in said and os.uname().nodename in said
            assert f"'kill {first.pid}'" in said and "\n" not in said
        link = tmp_path / "link"
        link.symlink_to(mine)
        assert "another run is active here" in refusal(link)
        hold([tmp_path / "other"], RUN)


@pytest.mark.parametrize("looking", ["-n", "--dry-run", "--unlock", "--summary", "--target-jobs", "--report=page.html"])
def test_who_only_looks_may_come_in(tmp_path, looking):
    with another(tmp_path):
        hold([tmp_path], [*RUN, looking])
    hold([tmp_path / "new"], [*RUN, looking])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_run_left_is_no_hindrance(tmp_path, how, capsys):
    with another(tmp_path) as first:
        first.send_signal(how)
        first.wait()
    assert (tmp_path / NAME).is_file()
    hold([tmp_path], RUN)
    assert f"resuming after an interrupted run: {Owner.myself().user}" in capsys.readouterr().err
    assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def test_a_run_that_ends_leaves_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", HOLDER.replace("3600", "0"), str(tmp_path)], check=True)
    assert done.returncode == 0 and not list(tmp_path.iterdir())


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
    def none(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    note(tmp_path, pid=os.getppid())
    assert f"process {os.getppid()}" in refusal(tmp_path)
    gone = subprocess.Popen(["true"])
    gone.wait()
    note(tmp_path, pid=gone.pid)
    hold([tmp_path], RUN)


def test_any_other_error_of_the_disk_is_shown(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="broken disk"):
        hold([tmp_path], RUN)


WORKER = (
    "from bolt.workflow.lock import wait_for_job; wait_for_job(); "
    "print('at work', flush=True); import time; time.sleep({})"
)


def test_a_job_waits_for_the_one_that_a_killed_run_left(tmp_path):
    """Snakemake removes the log of a job that it starts again."""
    log, env = tmp_path / "job.log", os.environ | {JOB: "1"}

    def start(seconds):
        log.unlink(missing_ok=True)
        with log.open("w") as file:
            return subprocess.Popen([sys.executable, "-c", WORKER.format(seconds)], stdout=file, env=env)

    def wait_until_at_work():
        while "at work" not in log.read_text():
            time.sleep(0.02)

    left = start(60)
    wait_until_at_work()
    again = start(60)
    time.sleep(0.5)
    assert again.poll() is None and not log.read_text()
    left.kill()
    left.wait()
    wait_until_at_work()
    third = start(0)
    again.kill()
    again.wait()
    assert third.wait(20) == 0 and "at work" in log.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["job.log"]


def test_a_job_waits_while_the_process_that_it_forked_lives(tmp_path):
    """The last attempt works in a fork, which may outlive a killed parent."""
    log, env = tmp_path / "job.log", os.environ | {JOB: "1"}
    forking = "import os; " + WORKER.replace("print(", "os.fork(); print(")
    with log.open("w") as file:
        parent = subprocess.Popen([sys.executable, "-c", forking.format(60)], stdout=file, env=env)
        while log.read_text().count("at work") < 2:
            time.sleep(0.02)
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
        again = subprocess.Popen([sys.executable, "-c", WORKER.format(0)], stdout=file, env=env)
        time.sleep(0.5)
        assert again.poll() is None and log.read_text().count("at work") == 2
        child.kill()
        assert again.wait(20) == 0 and log.read_text().count("at work") == 3


@pytest.mark.parametrize("env", [{}, {JOB: "1"}])
def test_by_hand_or_into_a_pipe_nobody_waits(env):
    command = [sys.executable, "-c", WORKER.format(0)]
    assert subprocess.run(command, env=os.environ | env, capture_output=True, check=True, timeout=20).stdout


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_that_is_just_ending_is_waited_for(tmp_path, shared):
    ending = (tmp_path / NAME).open("a+")
    fcntl.flock(ending, fcntl.LOCK_EX)
    timer = threading.Timer(0.1, ending.close)
    timer.start()
    lock._hold_one(tmp_path, shared=shared)
    timer.join()
    assert tmp_path / NAME in lock._held


def test_runs_of_participants_share_a_folder_and_keep_others_out(tmp_path, monkeypatch):
    first = (tmp_path / NAME).open("a+")
    fcntl.flock(first, fcntl.LOCK_SH)
    monkeypatch.setenv(lock.SHARED, "1")
    hold([tmp_path], RUN)
    lock._release(tmp_path / NAME, os.getpid())
    assert (tmp_path / NAME).exists(), "the first run still uses it"
    monkeypatch.delenv(lock.SHARED)
    assert "another run is active here" in refusal(tmp_path)
    first.close()
    hold([tmp_path], RUN)
