"""Killing a workflow at random moments, and telling whether what it ends with is what it would have been."""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bolt.workflow.lock import NAME
from tests.golden.__main__ import OWN, contents
from tests.snake import command

VICTIMS = ("everything", "scheduler", "worker")
"""The scheduler with all jobs; the scheduler, whose jobs live on; one job, which the scheduler tries again."""
HALF = re.compile(r"\.\d+-.*|.*\.part(\.json)?|.*\.lock|resume\.safetensors|" + re.escape(NAME))
"""Names of what is being written, or gone on with."""


@dataclass(frozen=True)
class Kill:
    """What was killed, how many seconds after the start, and the rules at work just then."""

    victim: str
    seconds: float
    jobs: str


class Killer:
    """Runs a workflow that is killed at random moments, and started again each time.

    Parameters
    ----------
    folder : Path
        Where `snakemake` is started.
    config : Path
    longest : float
        Seconds from the first job, or from a kill that the workflow survives, to the next kill, at most.
    seed : int
        Of what is drawn: the moments and the victims.
    targets : str
        What `snakemake` is asked for.
    """

    def __init__(self, folder: Path, config: Path, longest: float, seed: int, *targets: str) -> None:
        self.folder, self.command = folder, command(*targets, config=config)
        self.longest, self.random = longest, random.Random(seed)
        self.kills: list[Kill] = []

    def run(self, n_kills: int) -> list[Kill]:
        """Kill `n_kills` times, or until the workflow has ended; then let it end. Returns the kills."""
        victims = [VICTIMS[i % len(VICTIMS)] for i in range(n_kills)]
        self.random.shuffle(victims)
        with (self.folder / "snakemake.log").open("a") as log:
            for _ in range(2 * n_kills + 2):  # a job that was killed in each of its attempts needs a start more
                if self._session(victims, log) == 0:
                    return self.kills
        raise AssertionError(f"no end:\n{(self.folder / 'snakemake.log').read_text()[-5000:]}")

    def _session(self, victims: list[str], log) -> int:
        """From one start to the end or to a kill that ends it; the exit status."""
        process = psutil.Popen(self.command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        start = time.monotonic()
        while victims:
            wait_for_jobs(process)
            with contextlib.suppress(psutil.TimeoutExpired):
                return process.wait(self.random.uniform(0, self.longest))
            at_work = wait_for_jobs(process) if victims[0] == "worker" else jobs_of(process)
            if process.poll() is not None:
                break
            self.kills.append(Kill(victims[0], round(time.monotonic() - start, 1), " ".join(sorted(at_work.values()))))
            self._kill(victims.pop(0), process, list(at_work))
        return process.wait()

    def _kill(self, victim: str, process: psutil.Popen, at_work: list[psutil.Process]) -> None:
        everything = [process, *process.children(recursive=True)]
        killed = {"everything": everything, "scheduler": [process], "worker": [self.random.choice(at_work or [None])]}
        for one in killed[victim]:
            with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
                one.kill()


def jobs_of(process: psutil.Process) -> dict[psutil.Process, str]:
    """The jobs at work in their first attempt, with their commands; killed in the last, one is recorded as failed."""
    found = {}
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = child.cmdline()
            if words[1:3] == ["-m", "bolt"] and "--attempt 2" not in " ".join(words):
                found[child] = words[3]
    return found


def wait_for_jobs(process: psutil.Popen) -> dict[psutil.Process, str]:
    """Wait until a job is at work, or the workflow has ended; the jobs."""
    while not (found := jobs_of(process)) and process.poll() is None:
        time.sleep(0.2)
    return found


def differences(straight: Path, killed: Path) -> list[str]:
    """Files below `results` that are not in both, or not alike to the last byte; all but what tells of a run itself."""
    one, other = map(_contents, (straight, killed))
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _contents(folder: Path) -> dict[str, bytes]:
    """Name to content; the place of the run, which its configuration names, is left out."""
    files = {str(path.relative_to(folder)): path for path in (folder / "results").rglob("*") if path.is_file()}
    kept = {name: path for name, path in files.items() if not any(word in name for word in OWN)}
    return {name: _content(path).replace(str(folder).encode(), b"") for name, path in kept.items()}


def _content(path: Path) -> bytes:
    if path.suffix == ".h5":  # HDF5 notes the time of writing in the file
        return dict(contents(path))["transform"]
    return path.read_bytes()


def half_written(folder: Path) -> list[Path]:
    """What a kill has left below `results` and `work` that is not whole."""
    places = (folder / "results", folder / "work")
    return sorted(path for place in places for path in place.rglob("*") if HALF.fullmatch(path.name))
