"""BolT: against the equations in loops, against the published implementation's numbers, and at its edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from bolt.config import load_experiment
from bolt.explain.relevance import relevance
from bolt.io.errors import ConfigError, DataError
from bolt.models.attention import native
from bolt.models.bolt import BolT, from_reference
from tests.models.plain_bolt import plain_bolt, plain_relevance, window_starts
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


@pytest.fixture(params=["kernel", "torch"])
def backend(request, monkeypatch):
    """Both ways to compute attention."""
    if request.param == "torch":
        monkeypatch.setattr(native, "usable", lambda q: False)
    elif native.library() is None:
        pytest.skip("no C++ compiler")


fixture_stays = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@fixture_stays
@given(cases([*CLS, {"cls_token": "none"}, {"cls_token": "none", "windowed": False}]))
def test_equals_the_equations(backend, case):
    model, length = case
    x = torch.randn(2, length, 5, dtype=torch.float64)
    y = torch.tensor([0, 2])

    plain = [plain_bolt(model, scan) for scan in x]
    loss = cross_entropy(torch.stack([p.logits for p in plain]), y)
    cwr = 0.7 * sum(p.cwr for p in plain) / 2 if model.cls_token != "none" else torch.zeros((), dtype=torch.float64)
    expected = torch.autograd.grad(loss + cwr, list(model.parameters()), allow_unused=True)

    out = model(x)
    loss = cross_entropy(out.logits, y) + sum(out.losses.values())
    fast = torch.autograd.grad(loss, list(model.parameters()))
    close = {"rtol": 0, "atol": 1e-9}
    torch.testing.assert_close(out.logits, torch.stack([p.logits for p in plain]), **close)
    torch.testing.assert_close(out.cls, torch.stack([p.cls for p in plain]), **close)
    torch.testing.assert_close(torch.as_tensor(sum(out.losses.values()), dtype=torch.float64), cwr, **close)
    for (name, parameter), ours, theirs in zip(model.named_parameters(), fast, expected, strict=True):
        theirs = torch.zeros_like(parameter) if theirs is None else theirs  # a parameter the last block does not need
        torch.testing.assert_close(ours, theirs, **close, msg=lambda m, n=name: f"{n}: {m}")


@fixture_stays
@given(cases(), st.booleans(), st.sampled_from(["logit", "loss", "minus_loss"]))
def test_relevance_equals_algorithm_1(backend, case, given_target, gradient):
    model, length = case
    x = torch.randn(2, length, 5, dtype=torch.float64)
    target = torch.tensor([2, 1]) if given_target else None
    targets = [None, None] if target is None else target.tolist()
    expected = [plain_relevance(model, scan, one, gradient) for scan, one in zip(x, targets, strict=True)]
    torch.testing.assert_close(relevance(model, x, target, gradient), torch.stack(expected), rtol=0, atol=1e-9)


def reference():
    archive = np.load(shared_file("parity/bolt_small.npz"))
    weights = {key.removeprefix("param/"): torch.tensor(archive[key]) for key in archive if key.startswith("param/")}
    model = from_reference(
        weights,
        window_size=int(archive["window_size"]),
        stride=int(archive["stride"]),
        fringe=archive["fringe"].tolist(),
        num_heads=int(archive["heads"]),
        head_dim=int(archive["head_dim"]),
    )
    return archive, model, torch.tensor(archive["input_BRT"]).transpose(1, 2)


def assert_parity(ours, theirs):
    """At most 1e-5, and 1e-3 of the array's own largest value."""
    ours = ours.detach().numpy()
    assert ours.shape == theirs.shape
    largest = np.abs(ours - theirs).max()
    assert largest <= 1e-5
    assert largest <= 1e-3 * np.abs(theirs).max()


def test_parity_with_the_published_implementation():
    archive, model, x = reference()
    out = model(x)
    loss = cross_entropy(out.logits, torch.tensor(archive["labels"]))
    assert_parity(out.logits, archive["logits"])
    assert_parity(out.cls, archive["cls"])
    assert_parity(loss, archive["cross_entropy"])
    assert_parity(out.losses["cwr"] / model.cwr_weight, archive["cwr_mean_square"])

    (loss + out.losses["cwr"]).backward()
    gradients = {key.removeprefix("grad/"): archive[key] for key in archive if key.startswith("grad/")}
    # loading the gradients by the same names puts each in the place of its parameter
    places = from_reference(
        {key: torch.tensor(value) for key, value in gradients.items()},
        window_size=model.window,
        stride=model.stride,
        fringe=[block.attention.fringe for block in model.blocks],
        num_heads=int(archive["heads"]),
        head_dim=int(archive["head_dim"]),
    )
    for (name, parameter), (_, expected) in zip(model.named_parameters(), places.named_parameters(), strict=True):
        assert parameter.grad is not None, name
        assert_parity(parameter.grad, expected.detach().numpy())


def test_parity_of_relevance():
    archive, model, x = reference()
    np.testing.assert_array_equal(model(x).logits.argmax(-1), archive["relevance_class"])
    assert_parity(relevance(model, x), archive["relevance_BFT"])


def test_reference_with_a_parameter_missing_is_refused():
    with pytest.raises(DataError, match="not a checkpoint of the published BolT"):
        from_reference({}, window_size=10, stride=4, fringe=[0], num_heads=3, head_dim=5)


def published_state(window: int, stride: int, fringe: list[int], heads: int, head_dim: int, dim: int) -> dict:
    """All keys of the published module's ``state_dict()``: random weights, and buffers as its loops fill them."""
    random = torch.Generator().manual_seed(0)
    shapes = {"clsToken": (1, 1, dim), "inputNorm.weight": (dim,), "inputNorm.bias": (dim,)}
    shapes |= {"encoder_postNorm.weight": (dim,), "encoder_postNorm.bias": (dim,)}
    shapes |= {"classifierHead.weight": (2, dim), "classifierHead.bias": (2,)}
    state = {}
    for i, length in enumerate(fringe):
        block, receptive = f"blocks.{i}.", window + 2 * length
        attention = f"{block}transformer.attention."
        shapes |= {
            f"{attention}relative_position_bias_table": (2 * (window - 1 + length) + 1, heads),
            f"{attention}cls_bias_sequence_up": (1, heads, 1, receptive),
            f"{attention}cls_bias_sequence_down": (1, heads, window, 1),
            f"{attention}cls_bias_self": (1, heads, 1, 1),
        }
        for name, out, n in (("q", heads * head_dim, dim), ("kv", 2 * heads * head_dim, dim)):
            shapes |= {f"{attention}{name}.weight": (out, n), f"{attention}{name}.bias": (out,)}
        shapes |= {f"{attention}proj.weight": (dim, heads * head_dim), f"{attention}proj.bias": (dim,)}
        for name in ("mlp.net.0.0", "mlp.net.2"):
            shapes |= {f"{block}transformer.{name}.weight": (dim, dim), f"{block}transformer.{name}.bias": (dim,)}
        for name in ("attn_norm", "mlp_norm"):
            shapes |= {f"{block}transformer.{name}.{part}": (dim,) for part in ("weight", "bias")}
        count = length // stride + 1
        left, right = torch.zeros(2, count, window + 1, receptive + 1)
        for k in range(count):
            if length > 0:
                left[k, :, 1 : 1 + length - stride * k] = 1
                if -length + stride * k > 0:
                    right[count - 1 - k, :, -length + stride * k :] = 1
        state |= {f"{block}mask_left": left, f"{block}mask_right": right}
        places = torch.arange(window)[:, None] - (torch.arange(receptive) - length)[None, :]
        state[f"{attention}relative_position_index"] = places + window - 1 + length
    return state | {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}


GEOMETRY = {"window_size": 10, "stride": 4, "fringe": [0, 12, 24], "num_heads": 3, "head_dim": 5}


def test_a_published_state_dict_is_loaded_with_its_buffers():
    state = published_state(10, 4, [0, 12, 24], 3, 5, 24)
    x = torch.randn(2, 54, 24)
    whole = from_reference(state, **GEOMETRY)(x).logits
    weights = {name: value for name, value in state.items() if "mask_" not in name and "index" not in name}
    torch.testing.assert_close(from_reference(weights, **GEOMETRY)(x).logits, whole, rtol=0, atol=0)
    on_half = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    assert from_reference(on_half, **GEOMETRY).classifier.weight.dtype == torch.float16


@pytest.mark.parametrize("change", [{"stride": 3}, {"fringe": [0, 12, 22]}, {"window_size": 8}])
def test_buffers_of_other_settings_are_refused(change):
    with pytest.raises(DataError, match="is that of another window, stride or fringe"):
        from_reference(published_state(10, 4, [0, 12, 24], 3, 5, 24), **(GEOMETRY | change))


def test_papers_geometry():
    model = BolT(30, 2, hidden=8, n_heads=1, head_dim=2)
    assert (model.window, model.stride) == (20, 8)
    assert [block.attention.fringe for block in model.blocks] == [0, 24, 48, 72]
    assert model.cwr_weight == 0.1


@pytest.mark.parametrize(("length", "tail"), [(20, "cover"), (28, "cover"), (29, "cover"), (29, "drop"), (27, "drop")])
def test_window_starts(length, tail):
    model = BolT(5, 2, hidden=4, n_heads=1, head_dim=2, tail=tail)
    assert model.window_starts(length).tolist() == window_starts(length, 20, 8, tail)


def test_cover_reads_every_volume_and_drop_leaves_the_tail_out():
    torch.manual_seed(0)
    x = torch.randn(8, 11, 5, dtype=torch.float64, requires_grad=True)  # windows of 4 every 2: the last volume is left
    for tail, seen in (("cover", True), ("drop", False)):
        x.grad = None
        model = small(stride_coefficient=0.5, tail=tail)
        model(x).logits[0, 0].backward()
        assert bool((x.grad[0, -1] != 0).any()) is seen
        assert bool((relevance(model, x)[..., -1] > 0).any()) is seen


@pytest.mark.parametrize("mask_right", [True, False])
def test_keys_beyond_the_scan(mask_right):
    """Attention to what is not there is zero on the left always, on the right where it is masked."""
    model = small(fringe_coefficient=3, stride_coefficient=0.5, mask_right=mask_right)
    record = []
    model(torch.randn(1, 8, 5, dtype=torch.float64), record=record)
    first = record[1]  # the first block has no fringe
    maps = first.maps(torch.rand_like(first.output)).cls_to_bold
    fringe = model.blocks[1].attention.fringe
    assert (maps[0, :fringe] == 0).all() and (maps[0, fringe : fringe + model.window] > 0).any()
    assert bool((maps[-1, -fringe:] == 0).all()) is mask_right


def test_scans_of_a_batch_do_not_see_each_other():
    model, x = small(), torch.randn(3, 9, 5, dtype=torch.float64)
    torch.testing.assert_close(model(x).logits[1:2], model(x[1:2]).logits)


@pytest.mark.parametrize("kind", ["dropout", "input_dropout"])
def test_dropout_only_in_training(kind):
    model, x = small(**{kind: 0.5}), torch.randn(1, 9, 5, dtype=torch.float64)
    assert not torch.equal(model(x).logits, model(x).logits)
    model.eval()
    assert torch.equal(model(x).logits, model(x).logits)


def test_a_scan_shorter_than_the_window_is_refused():
    with pytest.raises(DataError, match="3 volumes, but the model needs at least 4"):
        small()(torch.randn(1, 3, 5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("window", 0),
        ("stride_coefficient", 1.2),
        ("fringe", [0]),
        ("dropout", 1.0),
        ("input_dropout", -0.1),
        ("roi_dropout", 1.0),
        ("correlations_dropout", 1.0),
        ("correlations", -1),
        ("tail", "keep"),
    ],
)
def test_settings_that_cannot_be_meant(key, value):
    with pytest.raises(ConfigError, match=f"'{key}'"):
        small(**{key: value})


def test_without_projection_the_rois_are_the_tokens():
    assert small(input_projection=False, hidden=5)(torch.randn(1, 6, 5, dtype=torch.float64)).cls.shape == (1, 3, 5)
    with pytest.raises(ConfigError, match="5 ROIs do not match hidden: 6"):
        small(input_projection=False)


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


def test_a_scan_of_the_batch_that_is_too_short_is_refused():
    with pytest.raises(DataError, match="3 volumes"):
        small()(torch.randn(2, 9, 5, dtype=torch.float64), lengths=[9, 3])


def test_ablations_are_settings_of_one_class():
    """Windows, fringes and CLS tokens of the paper's seven rows, on 100 volumes."""
    geometry = {}
    for row in load_experiment("ablation").rows:
        name, changes = row.row, row.hyper
        model = BolT(5, 2, hidden=4, n_heads=1, head_dim=2, **changes)
        out = model(torch.randn(2, 100, 5))
        windows, fringes = model.windows((100,)), [block.attention.fringe for block in model.blocks]
        regularized = bool(out.losses.get("cwr", torch.zeros(())) > 0)
        geometry[name] = (windows.n_cls, windows.n_windows, fringes[-1] if model.windowed else 0, regularized)
    assert geometry == {
        "vanilla": (0, 1, 0, False),
        "global CLS": (1, 1, 0, False),
        "windows, global CLS": (1, 5, 0, False),
        "windows, local CLS": (5, 5, 0, False),
        "+ token fusion": (11, 11, 0, False),
        "+ cross attention": (11, 11, 72, False),
        "+ cross-window regularization": (11, 11, 72, True),
    }


def test_adjacent_windows_with_a_local_token_do_not_see_each_other():
    model = small(stride_coefficient=1.0, cls_token="local")
    x = torch.randn(1, 8, 5, dtype=torch.float64, requires_grad=True)
    model(x).cls[0, 0].sum().backward()
    assert (x.grad[0, 4:] == 0).all() and (x.grad[0, :4] != 0).any()


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
    upper = np.triu_indices(5, 1)
    series = [scan[: n or 9] for scan, n in zip(x.numpy(), lengths or [None] * 3, strict=True)]
    r = torch.tensor(np.stack([np.corrcoef(scan.T)[upper] for scan in series]))
    features = model.correlations(r)
    weight = model.classifier.weight
    mean = torch.stack([tokens[:n].mean(0) for tokens, n in zip(out.cls, counts(model, lengths), strict=True)])
    expected = torch.cat([mean, features], 1) @ weight.T + model.classifier.bias
    torch.testing.assert_close(out.logits, expected, rtol=1e-5, atol=1e-6)
    assert relevance(model, x).shape == (3, len(model.window_starts(9)), 9)


def counts(model, lengths):
    return [len(model.window_starts(n)) for n in lengths or [9] * 3]


def test_roi_dropout_silences_whole_rois_in_training_only():
    model, x = small(roi_dropout=0.5, dropout=0.0), torch.ones(200, 9, 5, dtype=torch.float64)
    seen = []
    model.input_dropout.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].reshape(200, 9, 5)))
    model.train()(x)
    model.eval()(x)
    dropped = (seen[0] == 0).all(1)
    assert ((seen[0] == 0).any(1) == dropped).all() and 0.4 < dropped.double().mean() < 0.6
    assert (
        len({tuple(row) for row in dropped.tolist()}) > 10
        and (seen[0][~dropped[:, None].expand_as(seen[0])] == 2).all()
    )
    assert torch.equal(seen[1], x)


def test_a_single_class_is_a_number_to_predict():
    model, x = small(n_classes=1), torch.randn(3, 9, 5, dtype=torch.float64)
    assert model(x).logits.shape == (3, 1)
    assert (relevance(model, x) >= 0).all()
    with pytest.raises(DataError, match="the gradient of the loss needs classes"):
        relevance(model, x, gradient="loss")


def test_local_tokens_need_windows():
    with pytest.raises(ConfigError, match="'windowed'"):
        small(windowed=False)


def test_every_parameter_has_a_gradient_in_single_precision_too(backend):
    model = BolT(5, 2, hidden=4, n_heads=1, head_dim=2, window=4)
    out = model(torch.randn(2, 9, 5))
    (out.logits.sum() + out.losses["cwr"]).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("lengths", [[9, 9], [12, 12, 12], [9, 12, 4], [9, 9, 9, 9]])
def test_lengths_that_do_not_belong_to_the_batch_are_refused(lengths):
    with pytest.raises(DataError, match="for 3 scans of at most 9 volumes"):
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
