"""Comparisons of the text on a network with what its training used; each claims the numbers that it compares."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf

from bolt.models.base import ConnectivityModel
from tests.caches import dataset
from tests.report.sections.claims import Claims
from tests.report.sections.witness import Witness, dropout_rates, loss_weights

CROP, SHORT, LONG, TR = 40, 30, 45, 0.72
CLASSES = ["no", "yes"]
DATASET = dataset(CLASSES, CROP).model_copy(update={"age": "age"})
ALL_TRAINING = 14
"""Training scans of fold 0."""

DROPOUTS = {
    r"dropout of single ROI values \(rate #\)": r"input_dropout\.p",
    r"dropout of whole ROIs \(rate #\)": r"\.roi_dropout",
    r"dropout in attention layers \(rate #\)": r"bags\.\w+_attention\.dropout|summaries\..*",
    r"dropout of the weights with which volumes and windows are pooled \(rate #\)": r"bags\.word_dropout\.p",
    r"correlations between ROIs \(dropout rate #\)": r"correlations\.0\.p",
    r"stochastic depth \(rate rising linearly to # in the last block\)": r"blocks\.\d+\.drop_path",
}
"""Kinds of dropout besides the main one: the sentence, and where the rates are in the network."""
LOSSES = {
    r"cross-window regularisation \(weight #\)": "cwr_weight",
    r"a penalty on ROI representations that are not orthogonal \(weight #\)": "orthogonality_weight",
    r"a unit loss on pooling vectors \(weight #\)": "unit_weight",
    r"a top-k pooling loss \(weight #\)": "pooling_weight",
    r"a group-level consistency loss \(weight #\)": "consistency_weight",
}


def compare_input(claims: Claims, used: Witness) -> None:
    """Compare crops with the scans from which they came, and what the network was given with the crops."""
    if "ROI series:" not in claims and "random crops" not in claims:
        assert "computed from whole scans" in claims and not used.crops
        return
    if "crops of at most" in claims:
        shortest = longest = int(claims.number("random crops of at most # volumes"))
    else:
        shortest, longest = map(int, claims.numbers("random crops of # to # volumes"))
    lengths, alike = [], False
    for scan, crop, scans in used.crops:
        lengths.append(min(len(scan), len(crop)))
        if len(crop) < min(shortest, len(scan)):
            alike = True
            assert len(crop) == min(scans)
        windows = np.lib.stride_tricks.sliding_window_view(scan, lengths[-1], axis=0).swapaxes(1, 2)
        assert (windows == crop[: lengths[-1]]).all(axis=(1, 2)).any()  # neither wrapped nor shuffled
        assert lengths[-1] in (len(scan), min(scans)) or shortest <= lengths[-1] <= longest
    assert ("(in batches with shorter scans, as long as the shortest)" in claims) == alike
    assert ("(shorter scans whole)" in claims) != alike
    assert {len(scan) for scan, *_ in used.crops} == {SHORT, LONG} or "% of the training" in claims
    assert max(lengths) == longest and (shortest == longest or min(lengths) == shortest)
    if isinstance(used.fit.net, ConnectivityModel):
        assert all(len(crop) <= len(scan) for scan, crop, _ in used.crops)
        return
    given = [length for _, of_pass in used.passes for length in of_pass]
    if not used.mixing:
        assert sorted(given) == sorted(lengths)
    assert all(width == max(of_pass) for width, of_pass in used.passes)
    assert used.fit.net.takes_lengths or all(len(set(of_pass)) == 1 for _, of_pass in used.passes)


def compare_windows(claims: Claims, used: Witness) -> None:
    if "Its windows had" not in claims:
        assert not hasattr(used.fit.net, "window") or used.fit.model.model != "gc_lstm"
        return
    settings, stride = used.fit.model.hyper, used.fit.net.stride
    volumes, seconds = claims.numbers(r"Its windows had # volumes \(# s\)")
    assert volumes == used.fit.net.window and seconds == pytest.approx(volumes * TR, abs=0.051)
    shortened = abs(volumes - settings["window_seconds"] / TR) > 0.51
    assert shortened == ("because" in claims)
    if shortened:
        wanted, least = claims.numbers("not # s, because a training crop would otherwise hold fewer than #")
        assert wanted == settings["window_seconds"] and least == settings["least_windows"]
        assert (CROP - wanted / TR) // stride + 1 < least
        assert (CROP - volumes) // stride + 1 == least or volumes == CROP // 2


def compare_graphs(claims: Claims, used: Witness) -> None:
    """Compare the matrices of a scan with those of numpy and scikit-learn."""
    net = used.fit.net
    if not isinstance(net, ConnectivityModel):
        return
    random = np.random.default_rng(1)
    series = (random.standard_normal((200, 9)) @ random.standard_normal((9, 9))).astype(np.float32)
    matrices = net.matrices(torch.tensor(series)[None])[0].numpy()
    off = ~np.eye(len(matrices[0]), dtype=bool)
    if "trained on Pearson correlations between all pairs of ROIs" in claims:
        assert matrices[0][off] == pytest.approx(np.corrcoef(series.T)[off], abs=1e-4)
        return
    for words in ("Fisher z-transformed correlations as node", "partial correlations as edges", "Ledoit–Wolf shrunk"):
        assert words in claims
    fitted = LedoitWolf().fit(series)
    partial, correlation = -normalised(fitted.precision_), normalised(fitted.covariance_)
    assert matrices[0][off] == pytest.approx(np.arctanh(correlation[off]), abs=1e-3)
    joined = (matrices[1] != 0) & off
    assert matrices[1][joined] == pytest.approx(np.abs(np.arctanh(partial[joined])), abs=1e-3)
    if "All pairs of ROIs were joined" in claims:
        assert joined[off].all()
        return
    share = claims.number("joined the # % of ROI pairs with the largest partial correlations") / 100
    pairs = partial[np.triu_indices(len(partial), 1)]
    least = np.sort(pairs)[::-1][int(np.ceil(share * len(pairs))) - 1]
    largest = (partial >= least) & (partial > 0) & off
    nearest = np.eye(len(partial), dtype=bool)[np.where(off, partial, -2).argmax(1)] & ~largest.any(1)[:, None]
    assert (joined == (largest | nearest | nearest.T)).all()


def normalised(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))


def compare_steps(claims: Claims, used: Witness) -> None:
    epochs = len(used.history)
    assert epochs == claims.number("was trained for # epochs?")
    assert max(map(len, used.batches)) == claims.number("batch size of #")
    steps = len(used.batches) // epochs
    n_scans = len({i for batch in used.batches for i in batch})
    assert sum(map(len, used.batches)) == epochs * n_scans
    assert ("same batches in every epoch" in claims) == (epochs > 1 and used.batches[:steps] * epochs == used.batches)
    if "training subjects were used" in claims:
        share = claims.number("Only # % of the training subjects were used") / 100
        roles = used.series.index["scan_id"].map(used.predictions["role"])
        assert n_scans == (roles == "train").sum() == pytest.approx(share * ALL_TRAINING, abs=1)
    else:
        assert n_scans == ALL_TRAINING


def compare_optimiser(claims: Claims, used: Witness) -> None:
    (decay,) = set(used.decays)
    if not decay:  # both are Adam then
        assert " with Adam and a batch" in claims
    else:
        name = {"Adam": r"with Adam \(L2 penalty #\)", "AdamW": r"with AdamW \(weight decay #\)"}[used.optimiser]
        assert claims.number(name) == pytest.approx(decay, rel=1e-6)


def compare_rates(claims: Claims, used: Witness) -> None:
    """Compute the rate of every step from the text."""
    if "constant at" in claims:
        rate = claims.number("The learning rate was constant at #")
        assert used.rates == pytest.approx([rate] * len(used.rates), rel=1e-6)
        return
    sentence = re.search(r"The learning rate [^;]*?(?=\. [A-Z])", claims.text)[0]
    epochs, steps = len(used.history), len(used.rates) // len(used.history)
    warm, first, peak = 0.0, None, None
    if "over the first" in sentence:
        shape = "(?:linearly|along half a cosine wave)"
        first, peak = claims.numbers(f"The learning rate (?:rose|fell) {shape} from # to # over the first")
        warm = 1.0 if "the first epoch" in claims else claims.number("over the first # epochs")
        assert ("rate rose" in sentence) == (peak >= first)
    one_cycle = "one-cycle" in claims
    cosine = "along half a cosine wave" in sentence
    assert not (cosine and "linearly" in sentence)
    if "multiplied" in sentence:
        if not warm:
            peak = claims.number("The learning rate started at #")
        factor = claims.number("was multiplied by # every")
        every = claims.number("every # epochs?")
    elif warm < epochs:
        if not warm:
            peak = claims.number("The learning rate fell [^,]*? from # to")
        final = claims.number(r"fell [^,]*?to #(?=\. )")
    expected = []
    for step in range(1, len(used.rates) + 1):
        done, before = step / steps, (step - 1) / steps
        if done <= warm:
            share = before / (warm - 1 / steps) if one_cycle else done / warm
            expected.append(between(first, peak, share, cosine))
        elif "multiplied" in sentence:
            expected.append(peak * factor ** ((before - warm + 1e-9) // every))
        else:
            expected.append(between(peak, final, (done - warm) / (epochs - warm), cosine))
    assert used.rates == pytest.approx(expected, rel=1e-6)


def between(start: float, end: float, share: float, cosine: bool) -> float:
    return start + (end - start) * ((1 - np.cos(np.pi * share)) / 2 if cosine else share)


def compare_momentum(claims: Claims, used: Witness) -> None:
    if "β1" not in claims:
        assert set(used.momenta) == {0.9}
        return
    claims.words("one-cycle schedule")
    peak = int(np.argmax(used.rates))
    if peak:
        high, low = claims.numbers("β1 fell from # to #")
        assert (used.momenta[0], used.momenta[peak]) == (pytest.approx(high), pytest.approx(low))
        assert (np.diff(used.momenta[: peak + 1]) <= 0).all()
    if peak == len(used.rates) - 1:
        assert "rose from" not in claims
        return
    low, high = claims.numbers("rose from # to # .one-cycle")
    assert (used.momenta[peak], used.momenta[-1]) == (pytest.approx(low, abs=0.01), pytest.approx(high))
    assert (np.diff(used.momenta[peak:]) >= 0).all()


def compare_dropout(claims: Claims, used: Witness) -> None:
    """Compare all rates in the network."""
    rates = dropout_rates(used.fit.net)
    for pattern, place in DROPOUTS.items():
        there = {path: rates.pop(path) for path in list(rates) if re.fullmatch(place, path)}
        assert bool(there) == bool(re.search(pattern.replace("#", ".*?"), claims.text)), (pattern, there)
        if there:
            assert claims.number(pattern) == pytest.approx(max(there.values()), rel=1e-6)
        if "depth" in pattern:
            blocks = [block.drop_path for block in getattr(used.fit.net, "blocks", []) if there]
            assert blocks == pytest.approx(np.linspace(0, max(blocks, default=0), len(blocks)))
        else:
            assert len(set(there.values())) <= 1
    assert bool(rates) == (" dropout (rate " in claims)
    if rates:
        assert set(rates.values()) == {claims.number(r" dropout \(rate #")}
    local = "that of the output of attention was applied in each window, before windows were averaged" in claims
    assert local == any(
        getattr(module, "dropout_before_fusion", False) or getattr(module, "before_fusion", False)
        for module in used.fit.net.modules()
    )


def compare_losses(claims: Claims, used: Witness) -> None:
    weights = loss_weights(used.fit.net)
    if used.mixing:
        weights.pop("consistency_weight", None)
    if getattr(used.fit.net, "cls_token", "local") == "none":
        weights.pop("cwr_weight")
    assert weights == {name: claims.number(pattern) for pattern, name in LOSSES.items() if name in weights}
    assert [pattern for pattern, name in LOSSES.items() if pattern[:20] in claims and name not in weights] == []


def compare_regularisation(claims: Claims, used: Witness) -> None:
    net = used.fit.net
    if getattr(net, "correlations", None):
        assert claims.number("A layer of width #") == net.correlations[1].out_features
    assert ("The classifier also received" in claims) == bool(used.info["covariates"])
    for words, pattern, values in (
        ("mixup", r"mixup of pairs of scans \[@mixup\] \(α = #\)", used.mixing),
        ("smoothing", r"label smoothing \[@label_smoothing\] \(#\)", used.smoothing - {0.0}),
        ("gradients", "clipping of gradients to a norm of #", used.clips),
        ("moving average", r"exponential moving average \[@ema\], decay #", used.averaging),
    ):
        assert (words in claims) == bool(values)
        if values:
            assert list(values) == pytest.approx([claims.number(pattern)] * len(values), abs=1e-3 * (words[0] == "m"))
    assert ("bfloat16" in claims) == (used.precisions == {torch.bfloat16})


def compare_choice(claims: Claims, used: Witness) -> None:
    chosen = used.info["epoch"]
    if "last epoch" in claims:
        assert chosen == len(used.history)
    else:
        assert "epoch with the lowest validation loss" in claims
        assert (
            chosen == len(used.history) - used.history["validation_loss"].to_numpy()[::-1].argmin()
        )  # latest of equals


def compare_test_scans(claims: Claims, used: Witness) -> None:
    """Predict whole test scans again; then see whether a change of the last volume is noticed, whatever the length."""
    net, tested = used.fit.net.eval(), used.predictions[used.predictions["role"] == "test"]
    options = {"covariates": torch.zeros(1, net.n_covariates)} if getattr(net, "n_covariates", 0) else {}
    with torch.no_grad():
        for scan, row in tested.iterrows():
            logits = net(torch.tensor(used.series_of(scan))[None], **options).logits
            if not options:
                assert logits.softmax(-1)[0].tolist() == pytest.approx([row[f"p_{c}"] for c in CLASSES], abs=1e-4)
        unread = False
        for length in range(41, 50):
            random = torch.Generator().manual_seed(0)
            x = torch.randn(1, length, 9, generator=random) @ torch.randn(9, 9, generator=random)
            other = torch.cat([x[:, :-1], -5 * x[:, -1:]], dim=1)
            unread |= bool((net(x, **options).logits == net(other, **options).logits).all())
    assert "Test scans were used at full length" in claims
    assert ("full length, up to the last whole window." in claims) == unread


def compare_architecture(claims: Claims, used: Witness) -> None:
    """Compare the blocks, heads and windows of BolT with those of the network."""
    if "transformer blocks" not in claims:
        return
    net = used.fit.net
    attention = net.blocks[0].attention
    n_blocks, n_heads, head_dim = claims.numbers("has # transformer blocks of # attention heads with # dimensions")
    assert (n_blocks, n_heads, head_dim) == (len(net.blocks), attention.n_heads, attention.head_dim)
    hidden = net.norm.normalized_shape[0]
    width = hidden if "(hidden dimensions: as many as ROIs)" in claims else claims.number(r"hidden dimensions: #\)")
    assert width == hidden
    window = claims.number("within windows of # volumes")
    assert window == net.window
    if "α" in claims:
        assert net.stride == max(1, int(claims.number("stride coefficient α = #") * window + 1e-6))
    if "β" in claims:
        beta = claims.number(r"fringe coefficient β = #\)")
        wanted = [np.ceil(m * beta * (window - net.stride) - 1e-6) for m in range(len(net.blocks))]
        assert [block.attention.fringe for block in net.blocks] == wanted


COMPARISONS = (
    compare_input,
    compare_architecture,
    compare_windows,
    compare_graphs,
    compare_steps,
    compare_optimiser,
    compare_rates,
    compare_momentum,
    compare_dropout,
    compare_losses,
    compare_regularisation,
    compare_choice,
    compare_test_scans,
)
