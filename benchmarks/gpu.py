"""Measure BolT on a GPU, and check all models there, in one table; meant to take at most six minutes.

    python -m benchmarks.gpu --out gpu.tsv [--abide cc200_nofilt_noglobal_871.npz] [--published CHECKOUT_OF_BOLT]

Rows, the most important first: training steps of the paper's model (crops of 100 and 600 volumes, two scans of 1200),
in float32, tf32 and bfloat16, with their kernels; ten folds of ABIDE-I beside the predictions that a CPU made; the
published code's steps; prediction and relevance; folds trained one by one and side by side; attention alone; and
checks: every network equals itself on the CPU, a training step never waits for the host, folds give the same weights
either way, a killed training resumes with the same weights. A check that fails is a row like any other, so that the
rest is measured; the command then ends with status 1. With ``--device cpu --tiny`` the same runs anywhere, to test the
benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from benchmarks.abide_benchmark import FOLDS, PREDICTIONS
from benchmarks.bolt_speed import MATRICES, alternate, floor_operations
from bolt.config import Dataset, Model, known, load_model
from bolt.explain.relevance import relevance
from bolt.io.files import read_table, write_table
from bolt.models.attention.window import Shape
from bolt.models.attention.windows import PaddedWindows
from bolt.models.bolt import BolT
from bolt.models.parts.masks import given_seeds
from bolt.models.registry import create_model, has_epochs, with_facts
from bolt.series.cache import SeriesCache
from bolt.training.device import device_of, tensor_float
from bolt.training.loop import Fit
from bolt.training.outputs import Classes
from bolt.training.prediction import Pool, Scans
from bolt.training.runner import Training, train_folds

PRECISIONS = ("float32", "tf32", "bfloat16")
N_ROIS = 400
SIZES = {100: 32, 600: 32, 1200: 2}
"""Volumes of a crop and scans of a batch: the paper's for ABIDE-I and HCP-Rest, and whole scans of the latter."""
REPEATS = 10
LARGEST = {"logits": 1e-3, "gradients": 1e-2}
"""Differences between devices, relative to the largest value, above which a check fails; sums of float32 in another
order differ by less."""
TINY = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 6}
NARROW = {"tff": {"hidden": 160, "inner": 640}}
"""Instead of a hundred million weights."""
COLUMNS = {
    "measure": "what was measured or checked",
    "size": "batch and volumes, or the model",
    "precision": "of matrix products",
    "value": "median of the repetitions; of a check: the largest difference, or 1 if it holds and 0 if not",
    "unit": "of the value",
    "failed": "what is wrong, where a check fails",
    "memory_mb": "peak of torch's allocator, MB",
    "roofline": "least operations of an exact BolT, over what matrix products alone would take",
    "busy": "share of the time in which the GPU computed",
    "kernels": "that the GPU ran",
}
Row = dict[str, Any]


class Bench:
    """What is measured, and where.

    Parameters
    ----------
    device : torch.device
    tiny : bool
        A small model and few scans, to test the benchmark.
    """

    def __init__(self, device: torch.device, tiny: bool) -> None:
        self.device, self.tiny = device, tiny
        self.on_gpu = device.type == "cuda"
        self.repeats = 2 if tiny else REPEATS
        self.n_rois = 12 if tiny else N_ROIS
        self.sizes = {24: 4} if tiny else SIZES

    def bolt(self) -> BolT:
        """Return the paper's model."""
        torch.manual_seed(0)
        net: BolT = create_model("bolt", self.n_rois, 2, **load_model("bolt").hyper | (TINY if self.tiny else {}))
        return net.to(self.device)

    def batch(self, n: int, volumes: int) -> tuple[Tensor, Tensor]:
        """Return random scans and classes."""
        random = torch.Generator().manual_seed(1)
        x = torch.randn(n, volumes, self.n_rois, generator=random)
        return x.to(self.device), torch.randint(2, (n,), generator=random).to(self.device)

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the median duration; the first repetition is not counted."""
        return float(np.median(alternate([action], self.repeats, self.device.type)[0]))

    def peak(self, action: Callable[[], object]) -> float:
        """Return the peak memory of an action in MB; NaN on a CPU."""
        if not self.on_gpu:
            return float("nan")
        torch.cuda.reset_peak_memory_stats()
        action()
        return torch.cuda.max_memory_allocated() / 1e6

    def busy(self, action: Callable[[], object], seconds: float) -> Row:
        """Return for which share of an action's usual duration kernels run, and their number; NaN on a CPU."""
        if not self.on_gpu:
            return {"busy": float("nan"), "kernels": float("nan")}
        activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as profile:
            action()
            torch.cuda.synchronize()
        kernels = [
            event.time_range.elapsed_us()
            for event in profile.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
        ]
        return {"busy": sum(kernels) / 1e6 / seconds, "kernels": len(kernels)}

    def rate(self, precision: str) -> float:
        """Return the operations per second of the fastest linear layer."""
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        best = 0.0
        with tensor_float(precision == "tf32" and self.on_gpu):
            for n, k, m in [(64, 64, 64)] if self.tiny else MATRICES:
                x, w = (torch.randn(shape, device=self.device, dtype=dtype) for shape in ((n, k), (k, m)))
                together = [x] * (1 if self.tiny else 20)  # one product is too short to be timed alone
                seconds = self.seconds(lambda xs=together, w=w: [x @ w for x in xs])  # type: ignore[misc]
                best = max(best, 2 * n * k * m * len(together) / seconds)
        return best

    def steps_of(self, folder: Path, volumes: int, n: int, short: int = 0, **training: object) -> Callable[[], object]:
        """Return what takes a step of `bolt.training.loop` on random scans, some of them shorter than the crop."""
        model = load_model("bolt")
        model = model.model_copy(update={"training": model.training.model_copy(update=training)})
        cache = SeriesCache(made_up(Path(tempfile.mkdtemp(dir=folder)), self.n_rois, n, volumes, volumes, short)[0])
        scans = Scans(Pool(cache, self.device), range(n), truth=np.arange(n) % 2)
        target = Classes(["no", "yes"])
        fit = Fit(self.bolt().train(), scans, None, target, model, volumes, 0, 0, Path(), "")
        optimizer, random, steps = fit.optimizer(), torch.Generator(), count(1)

        def step() -> object:
            number = next(steps)
            key, which = (0, 0, 1, number), torch.randperm(n, generator=random)
            return fit._step(optimizer, fit._draw(which, random, key, optimizer.rates(number)), key)

        return step

    # ---- rows --------------------------------------------------------------------------------------------------------
    def training_steps(self, folder: Path) -> Iterator[Row]:
        """Measure training steps of the paper's model, also on scans of different length, as ABIDE-I has them."""
        for precision in PRECISIONS:
            rate = self.rate(precision)
            for volumes, n in self.sizes.items():
                act = self.steps_of(folder, volumes, n, precision=precision)
                memory = self.peak(act)
                act()  # recorded as a graph; the next ones replay it, and allocate nothing
                seconds = self.seconds(act)
                least = floor_operations(n, volumes, True) / rate if not self.tiny else float("nan")
                row = {"size": f"{n} × {volumes}", "precision": precision, "unit": "ms"}
                more = {"memory_mb": memory, "roofline": least / seconds, **self.busy(act, seconds)}
                yield {"measure": "training step", "value": 1e3 * seconds, **row, **more}
        (volumes, n), *_ = self.sizes.items()
        act = self.steps_of(folder, volumes, n, short=n // 4)
        act(), act()
        row = {"size": f"{n} × {volumes}, some shorter", "precision": "float32", "unit": "ms"}
        yield {"measure": "training step", "value": 1e3 * self.seconds(act), **row}

    def attention(self) -> Iterator[Row]:
        """Measure forward and backward pass of attention alone, by the number of warps of a program."""
        if not self.on_gpu:
            return
        from bolt.models.attention import triton_window

        (volumes, n), *_ = self.sizes.items()
        windows = PaddedWindows(torch.full((n,), volumes, device=self.device), volumes, 20, 8, "cover", "local")
        shape, rows = Shape(windows, 40, 24, 44, 0, True), windows.n_cls + windows.n_tokens
        sizes = (rows, 800), (rows, 1600), (40, sum(shape.bias_sizes))
        q, kv, bias = (torch.randn(*size, device=self.device, requires_grad=True) for size in sizes)

        seed = torch.zeros((), dtype=torch.int64, device=self.device)

        def act() -> None:
            with given_seeds(iter([seed])):
                torch.autograd.grad(triton_window.attend(q, kv, bias, shape, 0.1), (q, kv, bias), q)

        for precision, name in (("float32", "ieee"), ("tf32", "tf32")):
            used = triton_window.WARPS[name]
            for warps in (used, 2 * used):
                triton_window.WARPS[name] = warps
                with tensor_float(name == "tf32"):
                    row = {"size": f"{n} × {volumes}, {warps} warps", "precision": precision, "unit": "ms"}
                    yield {
                        "measure": "attention of a block",
                        "value": 1e3 * self.seconds(act),
                        **row,
                        **self.busy(act, 1),
                    }
            triton_window.WARPS[name] = used

    def abide(self, series: Path, folder: Path) -> Iterator[Row]:
        """Train the folds of the fixed benchmark in one process; compare test scans with what a CPU predicted."""
        packed, table = dict(np.load(series)), read_table(FOLDS, text=("scan_id",)).set_index("scan_id")
        names, ends = [str(name) for name in packed["file_id"]], packed["offsets"]
        values = packed["data"].astype(np.float32)
        for start, end in pairwise(ends):
            scan = values[start:end] - values[start:end].mean(0)
            deviation = scan.std(0)
            values[start:end] = np.divide(scan, deviation, out=np.zeros_like(scan), where=deviation > 0)
        people = pd.DataFrame({"scan_id": names, "subject": names, "group": names})
        roles = table.loc[names].filter(like="fold_").iloc[:, : 1 if self.tiny else None]
        about = {name: table.loc[names, name].to_numpy() for name in ("site", "label")}
        folds = [people.assign(fold=fold, role=roles[name].to_numpy()) for fold, name in enumerate(roles)]
        index = people.assign(**about, offset=ends[:-1], length=np.diff(ends))
        cache, split = write_cache(folder, values, index, folds)
        dataset = dataset_in(folder, 100, ["control", "autism"])
        kept = read_table(PREDICTIONS).query("run == @run", local_dict={"run": load_model("bolt").run_name})
        for precision in PRECISIONS[: 1 if self.tiny else None]:
            trainings = [Training(fold, 0, folder / precision / str(fold)) for fold in range(len(folds))]
            model, start = self.model(1 if self.tiny else 20, 32, precision), time.perf_counter()
            errors = train_folds(cache, split, model, dataset, trainings, device=self.device.type, progress=False)
            row = {"size": f"{len(folds)} folds of ABIDE-I", "precision": precision}
            yield {"measure": "folds, start to last file", "value": time.perf_counter() - start, "unit": "s", **row}
            assert not any(errors), errors
            tables = [read_table(t.folder / "predictions.tsv").query("role == 'test'") for t in trainings]
            both = pd.concat(tables).merge(kept, on=["fold", "scan_id"], suffixes=("", "_cpu"))
            auc, of_cpu = (
                np.mean(
                    [roc_auc_score(of_fold["label"] == "autism", of_fold[name]) for _, of_fold in both.groupby("fold")]
                )
                for name in ("p_autism", "p_autism_cpu")
            )
            off = "" if self.tiny or abs(auc - of_cpu) <= 0.02 else f"the CPU's is {of_cpu:.3f}"
            yield {"measure": "AUC of test scans", "value": auc, "unit": "", **row} | ({"failed": off} if off else {})
            similarity = both["p_autism"].corr(both["p_autism_cpu"])
            yield {"measure": "correlation with the CPU's probabilities", "value": similarity, "unit": "", **row}

    def published(self, checkout: Path) -> Iterator[Row]:
        """Measure the published code's steps (its own model, and Adam), without what its loop does around them."""
        layers = types.ModuleType("timm.models.layers")
        layers.trunc_normal_ = nn.init.trunc_normal_  # type: ignore[attr-defined]  # all that it needs of timm
        sys.modules |= {"timm": layers, "timm.models": layers, "timm.models.layers": layers}
        sys.path.insert(0, str(checkout))
        with contextlib.redirect_stdout(io.StringIO()):
            from Models.BolT.bolT import BolT as Published  # type: ignore[import-not-found]
            from Models.BolT.hyperparams import getHyper_bolT  # type: ignore[import-not-found]

            settings = getHyper_bolT()
            settings.numHeads, settings.dim = 40, self.n_rois
            net = Published(settings, types.SimpleNamespace(nOfClasses=2)).to(self.device)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
        for volumes, n in self.sizes.items():
            x, y = self.batch(n, volumes)

            def step(x: Tensor = x, y: Tensor = y) -> None:
                net.train()
                optimizer.zero_grad()
                logits, cls = net(x.transpose(1, 2))
                spread = (cls - cls.mean(1, keepdim=True)).square().mean()
                (nn.functional.cross_entropy(logits, y) + 0.1 * spread).backward()
                optimizer.step()

            def predict(x: Tensor = x) -> None:
                net.eval()
                with torch.inference_mode():
                    net(x.transpose(1, 2))

            row = {"size": f"{n} × {volumes}", "precision": "float32", "unit": "ms"}
            for measure, act in (("training step, published code", step), ("prediction, published code", predict)):
                yield {"measure": measure, "value": 1e3 * self.seconds(act), "memory_mb": self.peak(act), **row}

    def forward_passes(self) -> Iterator[Row]:
        """Measure prediction and relevance of the paper's model."""
        for volumes, n in self.sizes.items():
            (x, _), net = self.batch(n, volumes), self.bolt().eval()
            row = {"size": f"{n} × {volumes}", "precision": "float32", "unit": "ms"}

            def predict(net: BolT = net, x: Tensor = x) -> None:
                with torch.inference_mode():
                    net(x)

            def explain(net: BolT = net, x: Tensor = x) -> None:
                relevance(net, x[:1])

            for measure, act in (("prediction", predict), ("relevance of one scan", explain)):
                yield {"measure": measure, "value": 1e3 * self.seconds(act), "memory_mb": self.peak(act), **row}

    def folds(self, folder: Path) -> Iterator[Row]:
        """Train four folds of random scans, one by one and side by side, and compare their weights."""
        for number, (volumes, batch) in enumerate(self.sizes.items()):
            if batch == 2:
                continue
            n, length = (8, 36) if self.tiny else (1024 // 4**number, volumes * 3 // 2)
            cache, folds, dataset = made_up(folder / str(volumes), self.n_rois, n, length, volumes)
            for precision in PRECISIONS:
                found = []
                size = {"size": f"4 folds of {n // 2} × {volumes}", "precision": precision}
                for name in ("one by one", "side by side"):
                    out = folder / str(volumes) / precision / name
                    trainings = [Training(fold, 0, out / str(fold)) for fold in range(4)]
                    start = time.perf_counter()
                    for some in [trainings] if name == "side by side" else [[training] for training in trainings]:
                        errors = train_folds(
                            cache, folds, self.model(5, batch, precision), dataset, some,
                            device=self.device.type, progress=False,
                        )  # fmt: skip
                        assert not any(errors), errors
                    yield {"measure": f"folds {name}", "unit": "s", "value": time.perf_counter() - start, **size}
                    found.append([(t.folder / "checkpoint.safetensors").read_bytes() for t in trainings])
                yield check("folds side by side, same weights", found[0] == found[1], "weights differ", **size)

    def model(self, epochs: int, batch: int, precision: str = "float32") -> Model:
        """Return the paper's model, trained for few epochs."""
        model, settings = load_model("bolt"), {"epochs": epochs, "batch_size": batch, "precision": precision}
        training = model.training.model_copy(update=settings)
        return model.model_copy(update={"training": training, "hyper": model.hyper | (TINY if self.tiny else {})})

    def equal(self) -> Iterator[Row]:
        """Compare logits and gradients of every network with those on the CPU."""
        for name in known("model"):
            model = load_model(name)
            if not has_epochs(model.model):
                continue
            hyper = model.hyper | (NARROW.get(name, {}) if self.tiny else {})
            settings = with_facts(model.model, hyper, {"crop": 60, "tr": 2.0})
            torch.manual_seed(0)
            net = create_model(model.model, 40, 2, **settings)
            switch_randomness_off(net)
            x = torch.randn(4, max(60, net.min_length), 40)
            found = []
            for device in (torch.device("cpu"), self.device):
                net.zero_grad()
                output = net.to(device)(x.to(device))
                (output.logits.square().sum() + sum(output.losses.values())).backward()
                gradients = [p.grad.flatten().cpu() for p in net.parameters() if p.grad is not None]
                found.append({"logits": output.logits.detach().cpu(), "gradients": torch.cat(gradients)})
            for what, largest in LARGEST.items():
                cpu, other = (values[what] for values in found)
                difference = float((cpu - other).abs().max() / cpu.abs().max().clamp(min=1e-12))
                row: Row = {"measure": f"largest difference of {what}", "size": name, "precision": "float32"}
                row |= {"value": difference, "unit": "of the largest"}
                yield row | ({} if difference <= largest else {"failed": f"above {largest:g}"})

    def syncs(self, folder: Path) -> Iterator[Row]:
        """Take training steps that would fail if they waited for the host, with all that a step may include."""
        (volumes, n), *_ = self.sizes.items()
        more = {"mixup": 0.4, "average_weights": 0.99, "clip_gradient": 1.0}
        cases: dict[str, dict[str, Any]] = {
            "alone": {},
            "scans of different length": {"short": 1},
            "mixed scans, averaged weights, clipped gradient": {"short": 1, **more},
        }
        for name, settings in cases.items():
            step, failed = self.steps_of(folder, volumes, n, **settings), ""
            step(), step()  # compile, and record the graph that the next replays
            try:
                if self.on_gpu:
                    torch.cuda.set_sync_debug_mode("error")
                step()
            except RuntimeError as error:
                failed = str(error).splitlines()[0]
            finally:
                if self.on_gpu:
                    torch.cuda.set_sync_debug_mode("default")
            yield check("a step never waits for the host", not failed, failed, size=f"{n} × {volumes}, {name}")

    def resumes(self, folder: Path) -> Iterator[Row]:
        """Kill a training, resume it, and compare its weights with one that was not killed."""
        made_up(folder, self.n_rois, 8 if self.tiny else 64, 24 if self.tiny else 150, 100)
        options = ["--device", self.device.type, *(["--tiny"] if self.tiny else [])]

        def start(out: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-m", "benchmarks.gpu", *options, "--train", folder, folder / out])

        assert start("whole").wait() == 0
        killed = start("killed")
        while killed.poll() is None and not (folder / "killed/resume.safetensors").is_file():
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        was_killed = killed.wait() == -signal.SIGKILL
        epochs = len(read_table(folder / "killed/history.tsv"))
        assert start("killed").wait() == 0
        whole, torn = ((folder / name / "checkpoint.safetensors").read_bytes() for name in ("whole", "killed"))
        failed = "" if was_killed else "the training ended before it was killed"
        failed = failed or ("" if whole == torn else "weights differ")
        yield check("killed and resumed, same weights", not failed, failed, size=f"after epoch {epochs}")

    def train(self, folder: Path, out: Path) -> None:
        """Train a fold, saving its state every epoch."""
        from bolt.training import loop

        loop.SECONDS_BETWEEN_SAVES = 0
        paths, trainings = (folder / "cache", folder / "folds.tsv"), [Training(0, 0, out)]
        (error,) = train_folds(
            *paths,
            self.model(12, 4 if self.tiny else 32),
            dataset_in(folder, 100),
            trainings,
            device=self.device.type,
            progress=False,
        )
        if error:
            raise error


def switch_randomness_off(net: nn.Module) -> None:
    """Make a network compute without random numbers, and with gradients, on every device."""
    net.eval()
    for module in net.modules():
        if isinstance(module, nn.RNNBase):  # cuDNN has no gradient of recurrent layers that are not in training
            module.train()
            module.dropout = 0.0


def check(measure: str, holds: bool, failed: str, **row: object) -> Row:
    """Return the row of a check."""
    return {"measure": measure, "value": float(holds), "unit": "", **row} | ({} if holds else {"failed": failed})


def made_up(folder: Path, n_rois: int, n: int, volumes: int, crop: int, short: int = 0) -> tuple[Path, Path, Dataset]:
    """Write a cache of random scans, some a quarter shorter, and four folds; return their paths, and the dataset."""
    random = np.random.default_rng(0)
    names = [f"sub-{number:04d}" for number in range(n)]
    people = pd.DataFrame({"scan_id": names, "subject": names, "group": names})
    lengths = np.where(np.arange(n) < short, volumes * 3 // 4, volumes)
    index = people.assign(site="a", label=["no", "yes"] * (n // 2), length=lengths)
    index["offset"] = lengths.cumsum() - lengths
    parts = np.arange(n) // 2 % 4  # two neighbours are of both classes
    folds = [
        people.assign(fold=fold, role=np.array(["test", "validation", "train", "train"])[(parts - fold) % 4])
        for fold in range(4)
    ]
    values = random.standard_normal((lengths.sum(), n_rois)).astype(np.float32)
    return *write_cache(folder, values, index, folds), dataset_in(folder, crop)


def write_cache(folder: Path, values: np.ndarray, index: pd.DataFrame, folds: list[pd.DataFrame]) -> tuple[Path, Path]:
    """Write a cache of series, and folds; return their paths."""
    cache = folder / "cache"
    rois = pd.DataFrame({"value": range(1, values.shape[1] + 1), "name": "r", "network": "n", "hemisphere": "L"})
    cache.mkdir(parents=True)
    np.save(cache / "series.npy", values)
    index.to_csv(cache / "index.tsv", sep="\t", index=False)
    rois.to_csv(cache / "rois.tsv", sep="\t", index=False)
    (cache / "manifest.json").write_text(json.dumps({"n_rois": values.shape[1]}))
    pd.concat(folds).to_csv(folder / "folds.tsv", sep="\t", index=False)
    return cache, folder / "folds.tsv"


def dataset_in(folder: Path, crop: int, classes: Sequence[str] = ("no", "yes")) -> Dataset:
    """Return the dataset whose cache is in a folder."""
    return Dataset(name="made_up", source="series", path=folder, label="label", classes=list(classes), crop=crop)


def about(device: torch.device) -> str:
    """Describe machine and versions."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}"


def main() -> None:
    """Measure everything, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model: a test of the benchmark")
    parser.add_argument("--out", type=Path, help="table to write")
    parser.add_argument("--abide", type=Path, help="cc200_nofilt_noglobal_871.npz: ABIDE-I's ready series")
    parser.add_argument("--published", type=Path, help="a checkout of the published code, icon-lab/BolT; needs einops")
    parser.add_argument("--train", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    bench = Bench(device_of(options.device, None), options.tiny)
    if options.train:
        bench.train(*options.train)
        return
    start, rows = time.perf_counter(), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        folds, killed = Path(folder, "folds"), Path(folder, "killed")
        real = bench.abide(options.abide, Path(folder, "abide")) if options.abide else ()
        published = bench.published(options.published) if options.published else ()
        checks = bench.attention(), bench.syncs(Path(folder)), bench.equal(), bench.resumes(killed)
        try:
            for row in chain(
                bench.training_steps(Path(folder)), real, published, bench.forward_passes(), bench.folds(folds), *checks
            ):
                rows.append(row)
                shown = (f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
                print(*shown, sep="  ", flush=True)
        finally:  # whatever ends it, what was measured is kept
            print(f"{about(bench.device)}; {time.perf_counter() - start:.0f} s")
            if options.out:
                columns = COLUMNS | {"measure": f"{COLUMNS['measure']}; {about(bench.device)}"}
                table = pd.DataFrame(rows, columns=list(COLUMNS))
                numbers = table.select_dtypes("number").columns
                table[numbers] = table[numbers].map(lambda value: float(f"{value:.4g}"))
                write_table(table, options.out, columns)
    if failed := [f"{row['measure']}, {row['size']}: {row['failed']}" for row in rows if row.get("failed")]:
        raise SystemExit("\n".join(["Checks that failed:", *failed]))


if __name__ == "__main__":
    main()
