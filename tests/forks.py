"""Start Snakemake and the jobs of a run within a moment: by forks of a process that has imported what they import.

A new interpreter spends seconds on imports, and a test that runs the workflow starts dozens. Arguments, folder,
environment and streams are those of a new process. Tests of processes themselves (kills, memory, imports) start new
interpreters.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import cache
from pathlib import Path

PYTHON = "BASH_FUNC_python%%"
"""Environment variable of a shell function `python`."""
CLIENT = Path(__file__).with_name("fork_client.py")
ROOT = CLIENT.parents[1]
SHARED = "BOLT_TESTS_FORKS"
"""Environment variable with the address of the server that all processes of a session share, if there is one."""


@cache
def address() -> str:
    """Return the address of the shared server, or start one; it ends with this process, which holds its stdin."""
    if SHARED in os.environ:
        return os.environ[SHARED]
    folder = tempfile.TemporaryDirectory(prefix="forks")
    place = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)
        command = [sys.executable, "-m", "tests.forks", place, str(listener.fileno())]
        server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])

    def stop() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(stop)
    return place


def run_module(
    arguments: list[str], folder: Path, environment: dict[str, str] | None = None, seconds: float = 2400
) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with arguments, a module's name first, in a folder; kill it after some seconds.

    Variables of `environment` are added to this process's own.
    """
    with tempfile.TemporaryFile("w+") as output, Path(os.devnull).open() as nothing:
        command = [sys.executable, "-I", "-S", CLIENT, address(), *arguments]
        streams = {"stdin": nothing, "stdout": output, "stderr": output}
        status = subprocess.call(command, cwd=folder, env=os.environ | (environment or {}), timeout=seconds, **streams)
        output.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read())


def jobs_as_forks() -> dict[str, str]:
    """Return variables with which the jobs of a Snakemake that is a new interpreter are forks all the same."""
    return {PYTHON: _shell_function(address())}


def _serve(address: str, listener: socket.socket) -> None:
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        _import_workflow()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        connection, _ = listener.accept()
        request, streams = _receive(connection)
        _import_stage(request["arguments"])
        if os.fork() == 0:
            listener.close()
            _attend(connection, address, request, streams)
        connection.close()
        for stream in streams:
            os.close(stream)


def _receive(connection: socket.socket) -> tuple[dict, list[int]]:
    """Return a request, and the three streams that come with it."""
    length, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(length, "big"))), streams


@cache
def _import_workflow() -> None:
    """Import, for the first request, what Snakemake and the Snakefile import, and read the code of all stages."""
    import smart_open  # noqa: F401
    import snakemake.cli

    from bolt.config import ROOT
    from bolt.experiments.checks import check_experiment
    from bolt.io.files import read_yaml
    from bolt.jobs.code_hash import fingerprint
    from bolt.models.registry import known_models
    from bolt.workflow.run import Run
    from bolt.workflow.stage import STAGES

    snakemake.cli.get_argument_parser()  # imports plugins
    known_models()
    run = Run(read_yaml(ROOT / "config/config.yaml"))  # reads the files of all models and experiments
    for name, experiment in run.experiments.items():
        check_experiment(experiment, run.experiment_rows[name])
    for stage in STAGES.values():
        fingerprint(*stage.code)
    gc.freeze()  # a fork that searches all these objects for cycles copies each page of them


def _import_stage(arguments: list[str]) -> None:
    """Import what the stage of a job imports."""
    from bolt.workflow.stage import STAGES

    stage = next((stage for stage in STAGES.values() if arguments[0] == "bolt" and stage.command == arguments[1]), None)
    modules = stage.code if stage else ()
    for module in modules:
        importlib.import_module(module)
    if any(module.startswith("bolt.training") for module in modules):
        importlib.import_module("torch._dynamo")  # as torch does for the first optimizer
    gc.freeze()


def _attend(connection: socket.socket, address: str, request: dict, streams: list[int]) -> None:
    """Fork the process that is asked for, and answer with its exit status; kill it if nobody waits for it any more."""
    ended, held = os.pipe()
    process = os.fork()
    if process == 0:
        connection.close()
        os.close(ended)
        _become(address, streams, **request)
    os.close(held)
    ready, _, _ = select.select([connection, ended], [], [])
    if connection in ready:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(address: str, streams: list[int], arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Be a new process, which ends as any interpreter but for freeing what it has imported: a second, and all pages."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.environ[PYTHON] = _shell_function(address)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    for module in list(sys.modules.values()):
        if hasattr(module, "BEGUN"):
            module.BEGUN = time.monotonic()
    sys.argv = arguments
    sys.path[0] = folder
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    status: object = None
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    except BaseException:
        status = traceback.format_exc()
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def _shell_function(address: str) -> str:
    """Return what `python` is in the shells of jobs: `python -m bolt` and `python -m snakemake` are forks, too."""
    client = f'command python -I -S {CLIENT} {address} "${{@:2}}"'
    return f'() {{ case "$1 $2" in "-m bolt"|"-m snakemake") {client};; *) command python "$@";; esac; }}'


if __name__ == "__main__":
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
