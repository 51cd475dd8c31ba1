"""A SLURM of one node on this machine, for tests and measurements: started as root on loopback, with pretended GPUs.

By hand, from the repository (the folder holds everything: configuration, logs, spool):

    python -m tests.slurm.one_node up /tmp/slurm        # then sbatch, squeue, snakemake --workflow-profile …
    python -m tests.slurm.one_node down /tmp/slurm

In a test: ``reason = why_not()``; ``with one_node(folder): …``. Debian's packages are slurmctld, slurmd, slurm-client
and munge.

One machine has one /etc/slurm and so one such SLURM at a time. It must be /etc/slurm, and not SLURM_CONF: within a job
the executor clears the variables of SLURM before it calls `srun`. A configuration there that is not ours is never
touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ETC = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf")
MARK = "one-node.mark"  # in the folder of each SLURM that this module starts
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol")
MEMORY = 64_000  # of the node, MB; no job of a test uses what it asks for
GPUS = 2  # pretended: jobs that ask for one see CUDA_VISIBLE_DEVICES
COMPLETED = "log/completed.txt"  # a line for each job that has ended, written by slurmctld

CONFIGURATION = Path(__file__).with_name("slurm.conf").read_text()


def why_not() -> str | None:
    """The reason why no SLURM can be started here, or None."""
    if os.geteuid() != 0:
        return "SLURM's daemons are started as root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"SLURM is not installed: no {', '.join(missing)} (apt-get install slurmctld slurmd slurm-client munge)"
    try:
        socket.getaddrinfo(_host(), None, socket.AF_INET, flags=socket.AI_ADDRCONFIG)  # as SLURM asks
    except OSError:
        return f"no address is known of this machine, {_host()} (a line in /etc/hosts would do)"
    for link in (ETC / name for name in FILES):
        folder = link.resolve().parent
        if link.exists() and not (link.is_symlink() and (folder / MARK).exists()):
            return f"{link} is this machine's own configuration"
        if link.is_symlink() and _alive(folder / "run/slurmctld.pid"):
            return f"another SLURM of one node is running, in {folder}"
    return None  # a link that leads nowhere was left behind by a killed test


@contextlib.contextmanager
def one_node(folder: Path, cpus: int) -> Iterator[Path]:
    """A SLURM that lives as long as the `with`; gives its folder, which is new and has a short path."""
    start(folder, cpus)
    try:
        yield folder
    finally:
        stop(folder)


def start(folder: Path, cpus: int) -> None:
    """Start munge, the controller and the node's daemon; back when the node is idle."""
    reason = why_not()
    if reason:
        raise RuntimeError(reason)
    _configure(folder, cpus)
    try:
        for link in (ETC / name for name in FILES):
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(folder / link.name)
        places = {"key": "munge/munge.key", "log": "munge/munged.log", "seed": "munge/munged.seed"}
        places |= {"pid": "run/munged.pid"}
        options = [f"--{name}-file={folder / place}" for name, place in places.items()]
        _run("munged", *options, f"--socket={folder / 'run/munge.sock'}", "--num-threads=2", "--force")
        for name in ("slurmctld", "slurmd"):
            _run(name, "-f", str(folder / "slurm.conf"))
        if not _wait(lambda: _said("sinfo", "-h", "-o", "%T").split()[:1] == ["idle"], patience=60):
            logs = "".join(path.read_text()[-2000:] for path in sorted((folder / "log").glob("slurm*.log")))
            raise RuntimeError(f"the node is not idle after a minute:\n{logs}")
    except BaseException:
        stop(folder)
        raise


def stop(folder: Path, patience: float = 20.0) -> None:
    """End all jobs and daemons, and take away what was put into /etc/slurm."""
    if shutil.which("scancel") and _alive(folder / "run/slurmctld.pid"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["scancel", "--full", "--user", "root"], capture_output=True, timeout=patience)
            _wait(lambda: not _said("squeue", "-h"), patience)
    for name, signal in [(name, signal) for signal in (15, 9) for name in ("slurmd", "slurmctld", "munged")]:
        pid = _alive(folder / "run" / f"{name}.pid")
        if pid:
            os.kill(pid, signal)
            _wait(lambda pid=pid: not Path(f"/proc/{pid}").exists(), patience)
    for link in (ETC / name for name in FILES):
        if link.is_symlink() and link.readlink().parent == folder:
            link.unlink()
    if (folder / MARK).is_file() and "made" in (folder / MARK).read_text():
        with contextlib.suppress(OSError):
            ETC.rmdir()


def completed(folder: Path) -> list[dict[str, str]]:
    """What the controller wrote of each job that has ended: JobId, Name, JobState, Partition, TimeLimit, …"""
    path = folder / COMPLETED
    lines = path.read_text().splitlines() if path.is_file() else []
    return [dict(pair.split("=", 1) for pair in line.split() if "=" in pair) for line in lines]


def job(number: str) -> dict[str, str]:
    """What the controller knows of a job, also some minutes after its end: JobState, TimeLimit, NumCPUs, Comment, …"""
    shown = _said("scontrol", "--oneliner", "show", "job", number)
    return dict(pair.split("=", 1) for pair in shown.split() if "=" in pair)


def _configure(folder: Path, cpus: int) -> None:
    """The state folder: configuration, a key of its own, and devices that stand for GPUs."""
    for name in ("state", "spool", "log", "run", "munge", "devices"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "munge").chmod(0o700)
    (folder / "run").chmod(0o755)
    (folder / MARK).write_text("" if ETC.is_dir() else f"made {ETC}\n")
    key = folder / "munge/munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = _host()
    names = {"host": host, "folder": folder, "completed": COMPLETED, "cpus": cpus, "gpus": GPUS, "memory": MEMORY}
    ports = {"port": _free_port(), "other_port": _free_port()}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**names, **ports))
    devices = [folder / f"devices/gpu{k}" for k in range(GPUS)]
    for device in devices:  # as /dev/null is: a plain file would give no CUDA_VISIBLE_DEVICES
        if not device.exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (folder / "gres.conf").write_text("".join(f"NodeName={host} Name=gpu File={device}\n" for device in devices))


def _path() -> str:
    """Daemons lie where not every user's PATH leads."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _run(name: str, *arguments: str) -> None:
    program = shutil.which(name, path=_path())
    assert program is not None  # why_not has looked
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{name} does not start: {done.stdout}{done.stderr}")


def _alive(pid_file: Path) -> int | None:
    """The number of a daemon that runs, by its file."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        return pid if pid_file.stem.startswith(name) else None
    return None


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()


def _wait(until, patience: float) -> bool:
    end = time.monotonic() + patience
    while not until():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


if __name__ == "__main__":
    what, place = sys.argv[1:]
    if what == "up":
        start(Path(place).resolve(), os.cpu_count() or 1)
    else:
        stop(Path(place).resolve())
