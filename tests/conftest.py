"""Settings for all tests: one thread a process that waits asleep, no network, no display."""

import gc
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests import forks

TESTS = Path(__file__).parent
for variable in ("OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads starve the other test
os.environ.setdefault("TEMPLATEFLOW_AUTOUPDATE", "false")
os.environ.setdefault("NIPYPE_NO_ET", "1")
os.environ.setdefault("MPLBACKEND", "agg")
if not shutil.which("nvidia-smi"):  # Triton, which CUDA builds of torch bring, decides when it is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")


LONGEST = (
    *("end_to_end/test_demo.py", "end_to_end/test_real_scan.py", "end_to_end/test_paper.py"),
    *("end_to_end/test_bad_scan.py", "benchmarks/test_preprocessing.py", "end_to_end/test_kill.py"),
    *("end_to_end/test_abide.py", "end_to_end/test_slurm.py", "preprocess/test_reproducible.py"),
    *("workflow/test_dag.py", "workflow/test_experiments.py", "end_to_end/test_wheel.py"),
    *("preprocess/test_anatomical.py", "training/test_runner.py", "workflow/test_cluster.py"),
    *("report/test_browser.py", "report/pages/test_report.py", "preprocess/test_workflows.py"),
    *("workflow/test_conda.py", "models/test_window_attention.py", "explain/test_importance.py"),
    *("preprocess/test_native.py", "datasets/test_phantom.py", "preprocess/quality/test_compute.py"),
)
"""Files that take longest."""


def pytest_configure(config):
    """Let all processes of a session share a server of forks: its imports take ten seconds."""
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ[forks.SHARED] = forks.address()


gc.disable()  # all that is imported stays: until tests begin, a search for cycles finds none


def pytest_collection_modifyitems(items):
    """Sort the longest files first, so that of two processes neither waits long for the other at the end."""
    order = {name: place for place, name in enumerate(LONGEST)}
    assert all((TESTS / name).is_file() for name in LONGEST)
    items.sort(key=lambda item: order.get(item.path.relative_to(TESTS).as_posix(), len(order)))


def pytest_collection_finish():
    """Keep what is imported out of every later search for cycles."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Make what is not to be changed once for all processes of a session: what `make(folder)` returns."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def get(name, make):
        kept = shared / f"{name}.pickle"
        with FileLock(f"{kept}.lock"):
            if not kept.exists():
                kept.write_bytes(pickle.dumps(make(tmp_path_factory.mktemp(name))))
        return pickle.loads(kept.read_bytes())

    return get


@pytest.fixture
def pdf():
    """Ask for PDFs of pictures."""


@pytest.fixture(autouse=True)
def _no_pdf(request, monkeypatch):
    """Leave PDFs of pictures empty where a test does not ask for them: they take as long as PNG and SVG together."""
    backend = sys.modules.get("matplotlib.backends.backend_pdf")
    if backend and "pdf" not in request.fixturenames:
        monkeypatch.setattr(backend.FigureCanvasPdf, "print_pdf", leave_empty)


def leave_empty(_, file, **__):
    Path(file).touch()


@pytest.fixture
def every_epoch_saved(monkeypatch):
    """A training can be resumed after each epoch, however short."""
    monkeypatch.setattr("bolt.training.loop.SECONDS_BETWEEN_SAVES", 0)


@pytest.fixture
def chosen(monkeypatch):
    """Choose the instruction set of the compiled library, or 0 for none."""
    from bolt.models.compiled import library  # which imports torch

    def choose(level):
        monkeypatch.setenv("BOLT_NATIVE", level)
        library.library.cache_clear()

    yield choose
    monkeypatch.undo()
    library.library.cache_clear()
