"""Attention in Triton, run by its interpreter: equal to torch in double precision, with gradients and dropout."""

import itertools
import os
import subprocess
import sys

import pytest
import torch

from bolt.models.attention import window as window_attention
from bolt.models.attention.window import Shape
from bolt.models.attention.windows import PaddedWindows
from bolt.models.parts import masks
from tests.models.test_window_attention import (
    ROWS,
    assert_all_close_to_the_largest,
    inputs,
    inputs_of_rows,
    with_gradients,
)

SHORT = [(case | {"heads": 1}, bold_rows) for case, bold_rows in ROWS if max(case.get("lengths", (60,))) <= 60]
"""The interpreter takes seconds for a scan of sixty volumes."""

CLS_TOKENS = ("local", "global", "none")

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")
pytestmark = pytest.mark.slow


def in_triton(*arguments):
    """Import late, because a GPU's tests collect this file without Triton's interpreter."""
    from bolt.models.attention.triton_window import attend

    return attend(*arguments)


@pytest.mark.parametrize(("case", "bold_rows"), SHORT, ids=str)
def test_it_equals_torch(case, bold_rows):
    """With dropout; without, all weights are kept."""
    tensors, shape = inputs_of_rows(case, bold_rows)
    given, results = torch.randn_like(tensors[0]), []
    for attend in (window_attention.attend, in_triton):
        torch.manual_seed(5)
        results.append(with_gradients(attend(*tensors, shape, 0.3), tensors, given))
    assert_all_close_to_the_largest(*results, 1e-11)


@pytest.mark.parametrize(("window", "tail", "cls_token"), [
    *itertools.product((20,), ("cover", "drop"), CLS_TOKENS), *itertools.product((6,), ("cover",), CLS_TOKENS),
    *itertools.product((None,), ("cover",), CLS_TOKENS[1:]),
])  # fmt: skip
@pytest.mark.parametrize("lengths", [(47, 20, 33), (33,)])
def test_scans_may_be_padded(window, tail, cls_token, lengths):
    """Windows that a scan does not have are not read, and get no gradient; some volumes are in many windows."""
    windows = PaddedWindows(torch.tensor(lengths), 47, window, 1 if window == 6 else 8, tail, cls_token)
    shape = Shape(windows, 1, *((7, 27) if window else (0, 47)), 0, True)
    there = torch.cat([windows.there.flatten() if cls_token == "local" else torch.ones(windows.n_cls, dtype=bool),
                       torch.ones(windows.n_tokens, dtype=bool)])  # fmt: skip
    rows, size = windows.n_cls + windows.n_tokens, sum(shape.bias_sizes)
    torch.manual_seed(0)
    tensors = [torch.randn(*of, dtype=torch.float64, requires_grad=True) for of in ((rows, 5), (rows, 10), (1, size))]
    given, results = torch.randn(rows, 5, dtype=torch.float64) * there[:, None], []
    for attend in (window_attention.attend, in_triton):
        torch.manual_seed(5)
        out, *gradients = with_gradients(attend(*tensors, shape, 0.3), tensors, given)
        results.append([out * there[:, None], *gradients])
    assert_all_close_to_the_largest(*results, 1e-11)


def test_seeds_may_be_on_the_device():
    tensors, shape = inputs_of_rows({"lengths": (33, 20)}, True)
    results = []
    for seed in (2**40 + 3, torch.tensor(2**40 + 3)):
        with masks.given_seeds(iter([seed])):
            results.append(in_triton(*tensors, shape, 0.25))
    assert torch.equal(*results)


def test_scores_may_differ_much_between_windows():
    (q, kv, bias), shape = inputs(lengths=(28,), fringe=0, heads=1, dtype=torch.float64)
    with torch.no_grad():
        q[:, 0], kv[2 + 24, 0] = 30, 30  # volume 24 is in the second window alone, and outweighs all others by e**200
    expected = window_attention.attend(q, kv, bias, shape)
    torch.testing.assert_close(in_triton(q, kv, bias, shape), expected)
    single = in_triton(q.float(), kv.float(), bias.float(), shape)
    torch.testing.assert_close(single, expected.float(), rtol=1e-4, atol=1e-5)


COMPILE = """
import itertools, re, subprocess, sys, tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from bolt.models.attention import triton_window as kernels
from bolt.models.parts import triton_masks

TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
TYPES = {"table": "*i64", "starts": "*i64", "earliest": "*i64", "times": "*i64", "seed": "*i64", "scans": "*i64"}
TYPES |= {"larger": "fp32", "scale": "fp32", "n": "i32"} | {name: "i32" for name in kernels.INTEGERS if name != "seed"}
for precision, kind, drop, target in itertools.product(("ieee", "tf32"), (0, 1, 2), (True, False), (80, 90)):
    if (kind, drop) != (1, True) and (precision, target) != ("ieee", 80):
        continue
    settings = {"HEADS": 40, "D": 20, "WIDE": 32, "KIND": kind, "DROP": drop, "THERE": True, "PRECISION": precision,
                "SIZE": kernels.SIZE, "BOLD": True, "BLOCK": triton_masks.BLOCK}
    attention = kernels._forward, kernels._of_queries, kernels._of_keys, kernels._of_cls_keys
    for kernel, d in [*((kernel, d) for kernel in attention for d in (20, 64)), (triton_masks._drop, 20)]:
        settings |= {"D": d, "WIDE": 64 if d == 64 else 32}
        names = kernel.arg_names
        signature = {name: "constexpr" if name in settings else TYPES.get(name, "*fp32") for name in names}
        constants = {(names.index(name),): value for name, value in settings.items() if name in names}
        aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name][0] == "*"}
        compiled = compile(ASTSource(kernel, signature, constants, aligned), target=GPUTarget("cuda", target, 32),
                           options={"num_warps": kernels.WARPS[precision] * (settings["WIDE"] // 32)})
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(compiled.asm["cubin"])
            file.flush()
            usage = subprocess.run([TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
        stack = int(re.search(r"STACK:(\\d+)", usage)[1])
        print(kernel.__name__, precision, kind, drop, target, d, usage.split("Function")[-1].split()[1:4], stack)
        assert stack <= 256, "registers are kept in memory, which makes a kernel many times slower"
"""


def test_the_kernels_compile_for_gpus_without_one(tmp_path):
    """What the interpreter computes may still not compile; and registers must suffice."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
