"""BolT: against the equations in loops, against the published implementation's numbers, and at its edges."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from bolt.config import load_experiment
from bolt.explain.relevance import relevance
from bolt.io.errors import ConfigError, DataError
from bolt.models.attention import native
from bolt.models.bolt import BolT, from_reference
from tests.models.plain_bolt import plain_bolt, plain_relevance
from tests.shared import shared_file


def small(seed: int = 0, **hyper) -> BolT:
    """A tiny BolT in float64 whose every parameter is random, so that none hides behind a zero or a one."""
    torch.manual_seed(seed)
    settings = {"hidden": 6, "n_blocks": 2, "n_heads": 2, "head_dim": 3, "window": 4, "dropout": 0.0, **hyper}
    model = BolT(settings.pop("n_rois", 5), settings.pop("n_classes", 3), **settings).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model


CLS = [{}, {}, {"cls_token": "global"}, {"cls_token": "global", "windowed": False}]


@st.composite
def cases(draw, cls=CLS):
    """A model and the length of a scan, at the limits too."""
    window = draw(st.integers(1, 5))
    model = small(
        seed=draw(st.integers(0, 99)),
        window=window,
        stride_coefficient=draw(st.sampled_from([0.2, 0.4, 0.5, 0.75, 1.0])),
        fringe_coefficient=draw(st.sampled_from([0, 1, 2, 3])),
        n_heads=draw(st.integers(1, 3)),
        n_blocks=draw(st.integers(1, 3)),
        mlp_ratio=draw(st.sampled_from([0.5, 1.0, 2.0])),
        cwr_weight=0.7,
        tail=draw(st.sampled_from(["cover", "drop"])),
        **(kind := draw(st.sampled_from(cls))),
        **({} if kind else {"mask_right": draw(st.booleans())}),
    )
    return model, window + draw(st.sampled_from([0, 1, 2, 3, 5, 8]))


BACKENDS = ["torch"] if native.library() is None else ["kernel", "torch"]
"""Both ways to compute attention."""


def use(backend, monkeypatch):
    monkeypatch.setattr(native, "usable", lambda q: backend == "kernel")


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    use(request.param, monkeypatch)


def by_each_backend(compute):
    """What `compute` returns by both ways to compute attention."""
    for backend in BACKENDS:
        with pytest.MonkeyPatch.context() as patch:
            use(backend, patch)
            yield compute()


some_cases = settings(max_examples=30, deadline=None, derandomize=True)


@some_cases
@given(cases([*CLS, {"cls_token": "none"}, {"cls_token": "none", "windowed": False}]))
def test_equals_the_equations(case):
    model, length = case
    x = torch.randn(2, length, 5, dtype=torch.float64)
    y = torch.tensor([0, 2])

    plain = [plain_bolt(model, scan) for scan in x]
    logits, cls = (torch.stack([getattr(p, name) for p in plain]) for name in ("logits", "cls"))
    cwr = 0.7 * sum(p.cwr for p in plain) / 2 if model.cls_token != "none" else torch.zeros((), dtype=torch.float64)
    expected = torch.autograd.grad(cross_entropy(logits, y) + cwr, list(model.parameters()), allow_unused=True)

    def compute():
        out = model(x)
        loss = cross_entropy(out.logits, y) + sum(out.losses.values())
        return out, torch.autograd.grad(loss, list(model.parameters()))

    close = {"rtol": 0, "atol": 1e-9}
    for out, gradients in by_each_backend(compute):
        torch.testing.assert_close(out.logits, logits, **close)
        torch.testing.assert_close(out.cls, cls, **close)
        torch.testing.assert_close(torch.as_tensor(sum(out.losses.values()), dtype=torch.float64), cwr, **close)
        for (name, parameter), ours, theirs in zip(model.named_parameters(), gradients, expected, strict=True):
            theirs = torch.zeros_like(parameter) if theirs is None else theirs  # which the last block does not need
            torch.testing.assert_close(ours, theirs, **close, msg=lambda m, n=name: f"{n}: {m}")


@some_cases
@given(cases(), st.booleans(), st.sampled_from(["logit", "loss", "minus_loss"]))
def test_relevance_equals_algorithm_1(case, given_target, gradient):
    model, length = case
    x = torch.randn(2, length, 5, dtype=torch.float64)
    target = torch.tensor([2, 1]) if given_target else None
    targets = [None, None] if target is None else target.tolist()
    expected = torch.stack([plain_relevance(model, scan, one, gradient) for scan, one in zip(x, targets, strict=True)])
    for ours in by_each_backend(lambda: relevance(model, x, target, gradient)):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


GEOMETRY = {"window_size": 10, "stride": 4, "fringe": [0, 12, 24], "num_heads": 3, "head_dim": 5}


def reference():
    """What the published implementation computed, its weights, and its input as BolT reads it."""
    archive = np.load(shared_file("parity/bolt_small.npz"))
    return archive, of_archive(archive, "param/"), torch.tensor(archive["input_BRT"]).transpose(1, 2)


def of_archive(archive, kind):
    return {key.removeprefix(kind): torch.tensor(archive[key]) for key in archive if key.startswith(kind)}


def assert_parity(ours, theirs):
    """At most 1e-5, and 1e-3 of the array's own largest value."""
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.detach(), theirs, rtol=0, atol=min(1e-5, 1e-3 * np.abs(theirs).max()))


def test_parity_with_the_published_implementation():
    archive, weights, x = reference()
    model = from_reference(weights, **GEOMETRY)
    out = model(x)
    loss = cross_entropy(out.logits, torch.tensor(archive["labels"]))
    assert_parity(out.logits, archive["logits"])
    assert_parity(out.cls, archive["cls"])
    assert_parity(loss, archive["cross_entropy"])
    assert_parity(out.losses["cwr"] / model.cwr_weight, archive["cwr_mean_square"])

    (loss + out.losses["cwr"]).backward()
    # loading the gradients by the same names puts each in the place of its parameter
    places = from_reference(of_archive(archive, "grad/"), **GEOMETRY)
    for (name, parameter), (_, expected) in zip(model.named_parameters(), places.named_parameters(), strict=True):
        assert parameter.grad is not None, name
        assert_parity(parameter.grad, expected.detach().numpy())

    np.testing.assert_array_equal(out.logits.argmax(-1), archive["relevance_class"])
    assert_parity(relevance(model, x), archive["relevance_BFT"])


def buffers(window: int, stride: int, fringe: list[int]) -> dict:
    """The published module's buffers, as its loops fill them."""
    state = {}
    for i, length in enumerate(fringe):
        receptive, count = window + 2 * length, length // stride + 1
        left, right = torch.zeros(2, count, window + 1, receptive + 1)
        for k in range(count):
            if length > 0:
                left[k, :, 1 : 1 + length - stride * k] = 1
                if -length + stride * k > 0:
                    right[count - 1 - k, :, -length + stride * k :] = 1
        places = torch.arange(window)[:, None] - (torch.arange(receptive) - length)[None, :]
        state |= {f"blocks.{i}.mask_left": left, f"blocks.{i}.mask_right": right}
        state[f"blocks.{i}.transformer.attention.relative_position_index"] = places + window - 1 + length
    return state


def test_a_published_state_dict_is_loaded_with_its_buffers_unless_they_are_of_other_settings():
    _, weights, x = reference()
    state = weights | buffers(10, 4, [0, 12, 24])
    whole = from_reference(state, **GEOMETRY)(x).logits
    assert torch.equal(from_reference(weights, **GEOMETRY)(x).logits, whole)
    on_half = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    assert from_reference(on_half, **GEOMETRY).classifier.weight.dtype == torch.float16
    for change in ({"stride": 3}, {"fringe": [0, 12, 22]}, {"window_size": 8}):
        with pytest.raises(DataError, match="is that of another window, stride or fringe"):
            from_reference(state, **(GEOMETRY | change))
    with pytest.raises(DataError, match="not a checkpoint of the published BolT"):
        from_reference({}, **GEOMETRY)


DROPOUTS = ("dropout", "input_dropout", "roi_dropout", "correlations_dropout")


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("window", {"window": 0}),
        ("stride_coefficient", {"stride_coefficient": 1.2}),
        ("fringe", {"fringe": [0]}),
        *((key, {key: -0.1}) for key in DROPOUTS),
        *((key, {key: 1.0}) for key in DROPOUTS),
        ("correlations", {"correlations": -1}),
        ("tail", {"tail": "keep"}),
        ("windowed", {"windowed": False}),  # local tokens need windows
        ("dropout_before_fusion", {"dropout_before_fusion": True, "cls_token": "global"}),
        ("input_projection", {"input_projection": False}),  # 5 ROIs, but a hidden size of 6
    ],
)
def test_settings_that_cannot_be_meant(key, settings):
    with pytest.raises(ConfigError, match=f"'{key}'"):
        small(**settings)


@pytest.mark.parametrize("kind", [{}, {"cls_token": "global"}, {"cls_token": "none", "windowed": False}], ids=str)
@pytest.mark.parametrize("tail", ["cover", "drop"])
def test_scans_of_different_length_share_a_batch(backend, kind, tail):
    """Each gets what it gets alone, whatever fills its place after its end; so do the parameters."""
    model, lengths = small(tail=tail, **kind), [9, 4, 7]
    x = torch.randn(3, 9, 5, dtype=torch.float64)
    alone = [model(scan[None, :n]) for scan, n in zip(x.clone(), lengths, strict=True)]
    for i, n in enumerate(lengths):
        x[i, n:] = torch.nan
    out = model(x, lengths=lengths)
    torch.testing.assert_close(out.logits, torch.cat([each.logits for each in alone]))
    for i, each in enumerate(alone):
        own = each.cls.shape[1]
        torch.testing.assert_close(out.cls[i, :own], each.cls[0])
        assert (out.cls[i, own:] == 0).all()
    loss = out.logits.square().sum() + 3 * sum(out.losses.values())
    expected = sum(each.logits.square().sum() + sum(each.losses.values()) for each in alone)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(*(torch.autograd.grad(of, [*model.parameters()]) for of in (loss, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)


@some_cases
@given(cases([*CLS, {"cls_token": "none"}, {"cls_token": "none", "windowed": False}]), st.data())
def test_padded_scans_equal_packed_ones(case, data):
    """With gradients, whatever stands after the end of a scan; lengths are a tensor that the host need not read."""
    model, longest = case
    lengths = data.draw(st.lists(st.integers(model.min_length, longest), min_size=1, max_size=3))
    x, results = torch.randn(len(lengths), longest, 5, dtype=torch.float64), []
    for given_lengths in (lengths, torch.tensor(lengths)):
        out = model(x, lengths=given_lengths)
        loss = out.logits.square().sum() + 3 * sum(out.losses.values())
        results.append([out.logits, out.cls.sum(1), *torch.autograd.grad(loss, [*model.parameters()])])
        for scan, n in zip(x, lengths, strict=True):
            scan[n:] = 99
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_ablations_are_settings_of_one_class():
    """Windows, fringes and CLS tokens of the paper's seven rows, on 100 volumes."""
    geometry = {}
    for row in load_experiment("ablation").rows:
        model = BolT(5, 2, hidden=4, n_heads=1, head_dim=2, **row.hyper)
        out = model(torch.randn(2, 100, 5))
        windows, fringes = model.windows((100,)), [block.attention.fringe for block in model.blocks]
        regularized = bool(out.losses.get("cwr", torch.zeros(())) > 0)
        geometry[row.row] = (windows.n_cls, windows.n_windows, fringes[-1] if model.windowed else 0, regularized)
    assert geometry == {
        "vanilla": (0, 1, 0, False),
        "global CLS": (1, 1, 0, False),
        "windows, global CLS": (1, 5, 0, False),
        "windows, local CLS": (5, 5, 0, False),
        "+ token fusion": (11, 11, 0, False),
        "+ cross attention": (11, 11, 72, False),
        "+ cross-window regularization": (11, 11, 72, True),
    }


def test_covariates_join_before_the_classifier():
    model, x = small(n_covariates=2), torch.randn(3, 9, 5, dtype=torch.float64)
    covariates = torch.randn(3, 2, dtype=torch.float64)
    plain = model(x, covariates=torch.zeros_like(covariates))
    out = model(x, covariates=covariates)
    torch.testing.assert_close(out.logits - plain.logits, covariates @ model.classifier.weight[:, -2:].T)
    torch.testing.assert_close(out.cls, plain.cls)
    with pytest.raises(DataError, match="2 covariates per scan"):
        model(x)
    with pytest.raises(DataError, match="without covariates"):
        relevance(model, x)


@pytest.mark.parametrize("lengths", [None, [9, 7, 9]])
def test_correlations_join_before_the_classifier(lengths):
    model, x = small(correlations=3).eval(), torch.randn(3, 9, 5, dtype=torch.float64)
    out = model(x, lengths=lengths)
    means, correlations = [], []
    for scan, tokens, n in zip(x, out.cls, lengths or [9] * 3, strict=True):
        means.append(tokens[: len(model.window_starts(n))].mean(0))
        correlations.append(np.corrcoef(scan[:n].T)[np.triu_indices(5, 1)])
    features = torch.cat([torch.stack(means), model.correlations(torch.tensor(np.stack(correlations)))], 1)
    torch.testing.assert_close(out.logits, model.classifier(features), rtol=1e-5, atol=1e-6)
    assert relevance(model, x).shape == (3, len(model.window_starts(9)), 9)


def test_roi_dropout_silences_whole_rois_in_training_only():
    model, x = small(roi_dropout=0.5, dropout=0.0), torch.ones(200, 9, 5, dtype=torch.float64)
    seen = []
    model.input_dropout.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].reshape(200, 9, 5)))
    model.train()(x)
    model.eval()(x)
    assert torch.equal(seen[1], x)
    kept = seen[0][:, 0]
    assert torch.equal(seen[0], kept[:, None].expand_as(x)) and set(kept.unique().tolist()) == {0, 2}
    assert 0.4 < (kept == 0).double().mean() < 0.6 and len(kept.unique(dim=0)) > 10


def test_a_single_class_is_a_number_to_predict():
    model, x = small(n_classes=1), torch.randn(3, 9, 5, dtype=torch.float64)
    assert model(x).logits.shape == (3, 1)
    assert (relevance(model, x) >= 0).all()
    with pytest.raises(DataError, match="the gradient of the loss needs classes"):
        relevance(model, x, gradient="loss")


@pytest.mark.parametrize("lengths", [[9, 9], [12, 12, 12], [9, 12, 4], [9, 9, 9, 9], [9, 9, 3]])
def test_lengths_that_do_not_belong_to_the_batch_are_refused(lengths):
    with pytest.raises(DataError, match="3 volumes, but" if min(lengths) == 3 else "for 3 scans of at most 9 volumes"):
        small()(torch.randn(3, 9, 5, dtype=torch.float64), lengths=lengths)


@pytest.mark.parametrize("kind", [{}, {"cls_token": "none"}], ids=str)
def test_nan_is_not_hidden(backend, kind):
    model = small(**kind).float()
    x = torch.randn(1, 9, 5)
    with torch.no_grad():
        model.blocks[0].attention.query.weight[0, 0] = torch.nan
    assert model(x).logits.isnan().any()


def test_a_batch_first_seen_in_inference_can_be_learned_from(backend):
    model = BolT(5, 2, hidden=4, n_heads=1, head_dim=2, window=4)
    x = torch.randn(2, 37, 5)  # a length that no other test has
    with torch.inference_mode():
        model(x)
    model(x).logits.sum().backward()
    assert relevance(model, x).isfinite().all()
