"""Compare the speed and memory of BolT with a plain window-gather implementation (`window_gather.py`).

    python -m benchmarks.bolt_speed --threads 2 --repeats 5 --out results.tsv

After a warm-up the two alternate (A B A B …), with the paper's size, the same weights and the same data. A case is
``kind:batch:volumes``. Kinds: ``train`` (forward, cross entropy + CWR, backward, Adam; dropout 0.1), ``infer``
(evaluation, no gradients), ``relevance`` (of one scan), ``memory`` (peak of two training steps).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from benchmarks import window_gather
from bolt.explain.relevance import relevance
from bolt.models.bolt import BolT

N_ROIS = HIDDEN = MLP = 400
INNER, N_BLOCKS, WINDOW, STRIDE, FRINGE = 800, 4, 20, 8, 24  # 40 heads of 20; the fringe of block m is 24 m
CASES = ("train:32:100", "train:2:1200", "train:2:2400", "infer:32:100", "relevance:1:1200", "memory:32:100")
MATRICES = [(3552, 400, 1600), (3552, 800, 800), (2048, 2048, 2048), (4096, 4096, 4096)]  # first: K and V of 32 × T=100
COLUMNS = "case unit baseline baseline_min ours ours_min ratio floor baseline/floor floor/ours ours_scans/s"
EXPLAIN: dict[type, Callable[..., Tensor]] = {BolT: relevance, window_gather.WindowGather: window_gather.relevance}
Side = tuple[nn.Module, torch.optim.Optimizer]
Case = tuple[str, int, int]  # kind, batch, volumes
Measured = dict[tuple[Case, str], list[float]]  # by case and `baseline`, `ours` or `own gradients`


def parse_case(text: str) -> Case:
    """Parse a case such as ``train:32:100``."""
    kind, batch, length = text.split(":")
    if kind not in ("train", "infer", "relevance", "memory") or (kind == "relevance" and batch != "1"):
        raise ValueError(text)
    return kind, int(batch), int(length)


def our_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser that training uses."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)  # as in bolt/training/loop.py


def build(name: str, device: str) -> Side:
    """Return the model and optimiser of `ours` or `baseline`, with the same weights at every call."""
    torch.manual_seed(0)
    model = BolT(N_ROIS, 2).to(device)
    if name == "ours":
        return model, our_optimizer(model)
    plain = window_gather.WindowGather(model)
    return plain, torch.optim.Adam(plain.parameters(), lr=1e-4)


def data(batch: int, length: int, device: str) -> tuple[Tensor, Tensor]:
    """Return random scans (batch, length, ROIs) and labels (batch,)."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(batch, length, N_ROIS, generator=random)
    return x.to(device), torch.randint(2, (batch,), generator=random).to(device)


def run(side: Side, kind: str, x: Tensor, y: Tensor, precision: str) -> None:
    """Run a case once; `own gradients` is a forward and a backward pass in evaluation mode."""
    model, optimizer = side
    model.train(kind == "train")
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        if kind == "relevance":
            EXPLAIN[type(model)](model, x)
            return
        with torch.inference_mode(kind == "infer"):
            output = model(x)
    if kind != "infer":
        optimizer.zero_grad()
        (cross_entropy(output.logits.float(), y) + sum(output.losses.values())).backward()
    if kind == "train":
        optimizer.step()


def alternate(actions: list[Callable[[], object]], repeats: int, device: str) -> list[list[float]]:
    """Return the seconds of each alternating action; the first round is a warm-up and is not counted."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats + 1):
        for action, taken in zip(actions, times, strict=True):
            synchronize()
            start = time.perf_counter()
            action()
            synchronize()
            taken.append(time.perf_counter() - start)
    return [taken[1:] for taken in times]


def largest_differences(device: str) -> dict[str, float]:
    """Return the largest differences between the two without dropout; relevance is divided by its largest value."""
    x, y = data(4, 100, device)
    results = []
    for side in (build("ours", device), build("baseline", device)):
        run(side, "own gradients", x, y, "float32")
        of_name = {name: value.grad for name, value in side[0].named_parameters() if value.grad is not None}
        gradients = torch.cat([of_name[name].flatten() for name in sorted(of_name)])
        output, rel = side[0](x), EXPLAIN[type(side[0])](side[0], x[:1])
        results.append((output.logits, output.cls, output.losses["cwr"], gradients, rel / rel.max()))
    names = ("logits", "CLS tokens", "CWR", "gradients", "relevance")
    return {name: float((a - b).detach().abs().max()) for name, a, b in zip(names, *results, strict=True)}


def memory(device: str) -> list[float]:
    """Return the current and peak MB: allocated on CUDA, resident on the CPU."""
    if device == "cuda":
        return [torch.cuda.memory_allocated() * 1e-6, torch.cuda.max_memory_allocated() * 1e-6]
    # not getrusage's maximum, which a child inherits from its parent; "kB" means 1024 bytes
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(status[field].split()[0]) * 1.024e-3 for field in ("VmRSS", "VmHWM")]


def peak_memory(name: str, batch: int, length: int, device: str, threads: int, precision: str) -> float:
    """Return the peak MB that two training steps add (activations, gradients, Adam's state); run in a fresh process."""
    torch.set_num_threads(threads)
    torch.backends.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    side, (x, y) = build(name, device), data(batch, length, device)
    before = memory(device)[0]
    for _ in range(2):
        run(side, "train", x, y, precision)
    return memory(device)[1] - before


def floor_operations(batch: int, length: int, backward: bool) -> float:
    """Count the operations that an exact BolT needs; a multiply-add counts as two.

    Dense layers: once per token; the last block needs keys and values of all tokens and everything else only of its
    CLS tokens. Attention: each query-key pair in any window is scored once and multiplied by its value once. The
    backward pass costs twice the forward pass (once for the input projection, because the data need no gradient).
    """
    starts = sorted({*range(0, length - WINDOW + 1, STRIDE), length - WINDOW})  # a tail gets its own window
    n_tokens = length + len(starts)
    holding = [[n for n, s in enumerate(starts) if s <= t < s + WINDOW] for t in range(length)]
    total = 0
    for block in range(N_BLOCKS):
        keys = [(max(s - block * FRINGE, 0), min(s + WINDOW + block * FRINGE, length)) for s in starts]
        pairs, queries = sum(1 + last - first for first, last in keys), len(starts)
        if block < N_BLOCKS - 1:  # a BOLD token attends to the CLS tokens and (overlapping) keys of its windows
            pairs += sum(len(windows) + keys[windows[-1]][1] - keys[windows[0]][0] for windows in holding)
            queries = n_tokens
        total += n_tokens * HIDDEN * 2 * INNER + queries * 2 * HIDDEN * (INNER + MLP) + 2 * pairs * INNER
    return 2.0 * batch * (length * N_ROIS * HIDDEN * (2 if backward else 1) + total * (3 if backward else 1))


def matrix_rates(device: str, precision: str) -> dict[str, float]:
    """Return the GFLOP/s of linear layers, the best of five each."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    rates = {}
    for n, k, m in MATRICES:
        x, w = torch.randn(n, k, device=device, dtype=dtype), torch.randn(m, k, device=device, dtype=dtype)
        rates[f"{n}x{k} @ {k}x{m}"] = 2e-9 * n * k * m / min(alternate([partial(linear, x, w)], 5, device)[0])
    return rates


def measure(cases: list[Case], repeats: int, device: str, threads: int, precision: str) -> Measured:
    """Return the seconds of every repeat, or MB; repeats cycle through all cases, so a slow phase affects each."""
    measured, actions = {}, {}
    sides = {name: build(name, device) for name in ("baseline", "ours")}
    for case in cases:
        kind, batch, length = case
        x, y = data(batch, length, device)
        for name, side in sides.items():
            if kind == "memory":
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
                    job = fresh.submit(peak_memory, name, batch, length, device, threads, precision)
                    measured[case, name] = [job.result()]
            else:
                actions[case, name] = partial(run, side, kind, x, y, precision)
        if kind == "relevance":
            actions[case, "own gradients"] = partial(run, sides["ours"], "own gradients", x, y, precision)
    return measured | dict(zip(actions, alternate(list(actions.values()), repeats, device), strict=True))


def table(cases: list[Case], measured: Measured, rate: float) -> list[list[str]]:
    """Return the column names and one row per case; medians unless a column says min. `rate` is in GFLOP/s."""
    rows = [COLUMNS.split()]
    for case in cases:
        (kind, batch, length), (theirs, ours) = case, (measured[case, name] for name in ("baseline", "ours"))
        row = [median(theirs), min(theirs), median(ours), min(ours), median(theirs) / median(ours)]
        floor = floor_operations(batch, length, kind == "train") / (rate * 1e9)
        row += [floor, row[0] / floor, floor / row[2]] if kind in ("train", "infer") else [math.nan] * 3
        row += [math.nan if kind == "memory" else batch / row[2]]
        cells = [f"{kind}:{batch}:{length}", "MB" if kind == "memory" else "s"]
        rows.append(cells + ["" if math.isnan(value) else f"{value:.4g}" for value in row])
    return rows


def ratios(measured: Measured) -> list[str]:
    """Describe how time grows with the length of a scan, and what relevance costs."""
    lines = []
    for ((kind, batch, length), name), values in measured.items():
        if kind == "train" and (longer := measured.get(((kind, batch, 2 * length), name))):
            growth = median(longer) / median(values)
            lines.append(f"{name}, batch {batch}: time(T={2 * length}) / time(T={length}) = {growth:.3g}")
        if name == "own gradients":
            cost = median(measured[(kind, batch, length), "ours"]) / median(values)
            lines.append(f"ours: relevance / forward and backward of that scan ({median(values):.3g} s) = {cost:.3g}")
    return lines


def main() -> None:
    """Check that both compute the same, measure them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", type=parse_case, nargs="+", default=list(map(parse_case, CASES)))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["float32", "tf32", "bfloat16"], default="float32")
    parser.add_argument("--out", type=Path, help="also write the table as TSV, below the same heading")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    differences = largest_differences(options.device)
    agreement = "largest difference: " + ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
    if max(differences.values()) > 1e-5:
        sys.exit(f"{agreement}; the two do not compute the same")
    torch.backends.fp32_precision = "tf32" if options.precision == "tf32" else "ieee"
    rates = matrix_rates(options.device, options.precision)
    measured = measure(options.cases, options.repeats, options.device, options.threads, options.precision)
    rows = table(options.cases, measured, max(rates.values()))
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    machine = [cpu.split(":")[1].strip(), f"{len(os.sched_getaffinity(0))} cores, threads {options.threads}"]
    machine += [torch.cuda.get_device_name(), f"CUDA {torch.version.cuda}"] if options.device == "cuda" else []
    machine += [f"Python {sys.version.split()[0]}", f"torch {torch.__version__}", options.precision]
    heading = [
        f"{date.today()}: {', '.join(machine)}",
        f"python {shlex.join(sys.argv)}",
        agreement,
        "GFLOP/s (the best gives the floor): " + ", ".join(f"{name} {rate:.4g}" for name, rate in rates.items()),
        *ratios(measured),
    ]
    print_table(heading, rows, options.out)


def print_table(heading: list[str], rows: list[list[str]], out: Path | None) -> None:
    """Print a table, its columns' names first, below a heading, as Markdown; write it as TSV, too."""
    print("\n".join(f"- {line}" for line in heading), end="\n\n")
    print("\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]))
    if out:
        out.write_text("".join([f"# {line}\n" for line in heading] + ["\t".join(row) + "\n" for row in rows]))


if __name__ == "__main__":
    main()
