"""The attention kernel: equality with torch at realistic sizes and between instruction sets, dropout, threads, and
where the library comes from."""

import ctypes
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from bolt.io.errors import ConfigError
from bolt.models.attention import fused, native, window
from bolt.models.attention.window import Shape
from bolt.models.attention.windows import one_window, windows_of
from bolt.models.compiled import build, library

needs_kernel = pytest.mark.skipif(library.library() is None, reason="no C++ compiler")
needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="no C++ compiler")


def inputs(lengths=(60, 60), cls_token="local", fringe=24, beyond=0, heads=3, d=20, dtype=torch.float32, windowed=True):
    torch.manual_seed(0)
    windows = windows_of(lengths, 20, 8, "cover", cls_token) if windowed else one_window(lengths, cls_token)
    reach = 20 + fringe if windowed else windows.window
    shape = Shape(windows, heads, fringe if windowed else 0, reach, beyond, True)
    rows, keys = windows.n_cls + windows.n_tokens, windows.n_cls + windows.n_tokens + beyond * len(lengths)
    q, kv = torch.randn(rows, heads * d, dtype=dtype), torch.randn(keys, 2 * heads * d, dtype=dtype)
    bias = torch.randn(heads, sum(shape.bias_sizes), dtype=dtype)
    return [tensor.requires_grad_() for tensor in (q, kv, bias)], shape


CASES = [
    {},
    {"lengths": (33, 20, 47)},
    {"fringe": 0},
    {"fringe": 72, "beyond": 72},
    {"d": 7},
    {"windowed": False},
    {"windowed": False, "lengths": (33, 20, 47)},
    {"lengths": (300, 300), "fringe": 5},
    {"lengths": (150, 320), "fringe": 24, "beyond": 24},
]
CASES = [case | {"cls_token": cls} for case in CASES for cls in ("local", "global", "none")]
CASES = [case for case in CASES if case["cls_token"] != "local" or case.get("windowed", True)]
ROWS = [(case, True) for case in CASES] + [(case, False) for case in CASES if case["cls_token"] != "none"]


def inputs_of_rows(case, bold_rows, dtype=torch.float64):
    """Without rows of BOLD tokens, CLS tokens alone are queries."""
    (q, *rest), shape = inputs(dtype=dtype, **case)
    if not bold_rows:
        q, shape = q[: shape.windows.n_cls].detach().requires_grad_(), replace(shape, bold_rows=False)
    return [q, *rest], shape


def with_gradients(out, tensors, given):
    return [out, *torch.autograd.grad(out, tensors, given)]


@needs_kernel
@pytest.mark.parametrize(("dtype", "tolerance", "at_once"), [
    (torch.float64, 1e-12, (1, 2**27)), (torch.float32, 1e-5, (2**27,))
])  # fmt: skip
@pytest.mark.parametrize(("case", "bold_rows"), ROWS, ids=str)
def test_kernel_equals_torch(case, bold_rows, dtype, tolerance, at_once, monkeypatch):
    """To the last digits, with gradients and the same weights dropped; however many windows torch computes at once."""
    tensors, shape = inputs_of_rows(case, bold_rows, dtype)
    given = torch.randn_like(tensors[0])
    for dropout in (0.0, 0.3):
        results, states = [], []
        for way, numbers in ((native, 0), *((window, numbers) for numbers in at_once)):
            monkeypatch.setitem(window.AT_ONCE, "cpu", numbers)
            torch.manual_seed(5)
            out = way.attend(*tensors, shape, dropout)
            states.append(torch.get_rng_state())
            results.append(with_gradients(out, tensors, given))
        assert all(torch.equal(state, states[0]) for state in states), "they draw as many numbers"
        for other in results[1:]:
            assert_all_close_to_the_largest(results[0], other, tolerance)
    maps = [way.attention_maps(*tensors, shape, given) for way in (native, window)]
    assert not any(part.requires_grad for of_way in maps for part in of_way)
    assert_all_close_to_the_largest(*maps, tolerance)


def assert_all_close_to_the_largest(ours, theirs, tolerance):
    for our, their in zip(ours, theirs, strict=True):
        largest = float(their.detach().abs().max()) if their.numel() else 0.0
        torch.testing.assert_close(our, their, rtol=0, atol=tolerance * largest)


@needs_kernel
def test_scores_far_apart():
    """A key that outweighs all others by e**200 is in one window of a token and not in the other."""
    tensors, shape = inputs(lengths=(28,), fringe=0, heads=1)
    with torch.no_grad():
        tensors[0][:, 0] = 3
        tensors[1][2 + 24, 0] = 300  # volume 24: in the second window, tokens 8 to 27
    given = torch.randn_like(tensors[0])
    ours, theirs = (with_gradients(way.attend(*tensors, shape), tensors, given) for way in (native, window))
    assert_all_close_to_the_largest(ours, theirs, 1e-5)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_is_unbiased_and_drops_its_share(dropout):
    """By the kernel, which drops the same weights as torch, or else by torch."""
    way = window if library.library() is None else native
    (q, kv, bias), shape = inputs(lengths=(28,), heads=1, d=1)
    with torch.no_grad():
        kv[:, 1:] = 1  # values of one: a row of the output is the sum of its weights
        whole = way.attend(q, kv, bias, shape)
        torch.testing.assert_close(whole, torch.ones_like(whole))
        draws = torch.stack([way.attend(q, kv, bias, shape, dropout) for _ in range(2000)])
        # variance of the mean over P windows of sum_u w (m/(1-p)), masks independent: sum w² p/(1-p), by window
        ((sets, tile, _),) = window._all_sets(bias, shape)
        weights = window._weigh(q[sets.queries], kv[sets.keys], tile, sets)[0][:, 0]  # (windows, 1 + W, 1 + keys)
        expected = weights.square().sum(-1) * dropout / (1 - dropout)
    alone = expected[0, 1:9].flatten()  # tokens 0 to 7 lie in the first window only
    torch.testing.assert_close(draws[:, 2:10, 0].var(0), alone, rtol=0.15, atol=0)
    both = (expected[0, 9:] + expected[1, 1:13]) / 4  # tokens 8 to 19 lie in both: masks are drawn for each window
    torch.testing.assert_close(draws[:, 10:22, 0].var(0), both, rtol=0.15, atol=0)
    assert (draws.mean(0) - 1).abs().max() < 5 * (expected.max() / len(draws)).sqrt()


@needs_kernel
@pytest.mark.parametrize("own", [False, True])
def test_threads_do_not_change_a_bit(monkeypatch, own):
    """Those of torch, or where it has none of OpenMP, the kernel's own."""
    functions = native._thread_functions()
    monkeypatch.setattr(native, "_thread_functions", lambda: functions | {"GOMP_parallel": None} if own else functions)
    tensors, shape = inputs(lengths=(40, 40, 40))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(1)
            results.append(with_gradients(out := native.attend(*tensors, shape, 0.1), tensors, 2 * out.detach()))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def supported():
    """Names of the instruction sets that this processor has."""
    if (kernel := library.library()) is None:
        return []
    names = enumerate(library.levels(kernel.library))
    return [name for i, name in names if kernel.library.supported(ctypes.c_int64(i))]


@needs_kernel
@pytest.mark.parametrize("case", [{}, {"lengths": (33, 20, 47), "d": 7}, {"dtype": torch.float64}], ids=str)
@pytest.mark.parametrize("level", supported() or ["none"])
def test_instruction_sets_agree_in_results_and_dropout(chosen, level, case):
    tensors, shape = inputs(**case)
    given, results = torch.randn_like(tensors[0]), []
    for name in ("", level):
        chosen(name)
        results.append(list(native.attention_maps(*tensors, shape, given)))
        for dropout in (0.0, 0.3):
            torch.manual_seed(1)
            results[-1] += with_gradients(native.attend(*tensors, shape, dropout), tensors, given)
    assert library.levels(library.library().library)[library.library().level] == level
    assert_all_close_to_the_largest(*results, 1e-12 if "dtype" in case else 1e-5)


@needs_kernel
def test_the_library_is_chosen_by_name_or_switched_off(chosen):
    chosen("avx1024")
    with pytest.raises(ConfigError, match="avx1024"):
        library.library()
    chosen("0")
    assert library.library() is None


@pytest.mark.slow
@pytest.mark.skipif(not (build.find_compiler() and shutil.which("nm")), reason="no C++ compiler or no nm")
def test_instruction_sets_share_no_function(tmp_path):
    """The linker would keep one copy of it for all, possibly one that this processor cannot run."""
    for level, flags in build.levels().items():
        command = [build.find_compiler(), *build.FLAGS, *flags, f"-DLEVEL={level}", "-c", "-o", tmp_path / "part.o"]
        subprocess.run([*command, build.HERE / "kernel.cpp"], check=True)
        table = subprocess.run(["nm", tmp_path / "part.o"], capture_output=True, text=True, check=True).stdout
        symbols = [line.split()[1:] for line in table.splitlines() if " U " not in line]  # type and name
        visible = {name.lstrip("_") for kind, name in symbols if not kind.islower() or kind in "uvw"}
        assert visible == {f"{level}_{name}" for name in ("float", "double", "mask")}


def test_without_a_compiler_torch_computes(chosen, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen("")
    with caplog.at_level("INFO"):
        assert not native.usable(torch.zeros(1))
    assert "no C++ compiler" in caplog.text


@needs_compiler
def test_a_source_that_does_not_compile_is_reported(chosen, monkeypatch, tmp_path, caplog):
    for name in build.SOURCES:
        (tmp_path / name).write_text("int main( {")
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chosen("")
    assert library.library() is None
    assert "does not compile" in caplog.text
    assert list((tmp_path / "cache" / "bolt").iterdir()) == []


@pytest.mark.slow
@needs_compiler
def test_the_library_is_compiled_once_and_a_package_that_has_it_needs_no_compiler(chosen, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chosen("")
    assert library.library() is not None
    (built,) = (tmp_path / "cache/bolt").iterdir()
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    chosen("")
    assert library.library().library._name == str(built)

    built.rename(tmp_path / built.name)
    chosen("")
    assert library.library() is None

    monkeypatch.setattr(library, "PACKAGE", tmp_path)
    chosen("")
    assert library.library().library._name == str(tmp_path / built.name)


def test_a_library_of_other_sources_is_not_used(monkeypatch, tmp_path):
    before = build.file_name()
    for name in build.SOURCES:
        shutil.copy(build.HERE / name, tmp_path)
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.file_name() == before
    with (tmp_path / "simd.h").open("a") as source:
        source.write("// changed")
    assert build.file_name() != before


@needs_kernel
def test_a_library_that_cannot_be_loaded_is_reported_and_replaced(chosen, monkeypatch, tmp_path, caplog):
    (tmp_path / build.file_name()).write_text("not a library")
    monkeypatch.setattr(library, "PACKAGE", tmp_path)
    chosen("")
    assert library.library() is not None
    assert "cannot be loaded" in caplog.text


@pytest.mark.parametrize("way", [window, pytest.param(native, marks=needs_kernel)])
def test_half_precision_is_computed_in_single(way):
    """With gradients, within autocast as in training with `precision: bfloat16`."""
    tensors, shape = inputs()
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in tensors]
    single = [tensor.detach().float().requires_grad_() for tensor in half]
    with torch.autocast("cpu", torch.bfloat16):
        out = way.attend(*half, shape, 0.0)
    expected = way.attend(*single, shape, 0.0)
    torch.testing.assert_close(out, expected.bfloat16(), rtol=0, atol=0)
    given = torch.randn_like(out)
    gradients = [each.bfloat16() for each in torch.autograd.grad(expected, single, given.float())]
    assert_all_close_to_the_largest(torch.autograd.grad(out, half, given), gradients, 0.01)


def test_a_gpu_without_triton_uses_torch(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "bolt.models.attention.triton_window", None)
    fused._in_triton.cache_clear()
    with caplog.at_level("INFO"):
        assert fused._in_triton() is None
    fused._in_triton.cache_clear()
    assert "computed by torch" in caplog.text
