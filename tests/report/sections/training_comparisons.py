"""Comparisons of the text on a network with what its training used; each claims the numbers that it compares."""

import re

import numpy as np
import pytest
import torch

from bolt.io.files import read_json, read_table
from bolt.models.base import ConnectivityModel
from bolt.series.cache import SeriesCache
from bolt.training import batches, loop
from bolt.training.outputs import Training
from bolt.training.prediction import Scans
from bolt.training.runner import train_folds
from tests.caches import dataset

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


def compare_input(claims, used):
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


def compare_windows(claims, used):
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


def compare_graphs(claims, used):
    """Compare the matrices of a scan; those of partial correlations: tests/models/test_braingnn.py."""
    net = used.fit.net
    if not isinstance(net, ConnectivityModel):
        return
    if "trained on Pearson correlations between all pairs of ROIs" in claims:
        series = np.random.default_rng(1).standard_normal((200, 9)).astype(np.float32)
        matrix, off = net.matrices(torch.tensor(series)[None])[0, 0].numpy(), ~np.eye(9, dtype=bool)
        assert matrix[off] == pytest.approx(np.corrcoef(series.T)[off], abs=1e-4)
        return
    for words in ("Fisher z-transformed correlations as node", "partial correlations as edges", "Ledoit–Wolf shrunk"):
        assert words in claims
    assert net.complete == ("All pairs of ROIs were joined" in claims)
    if not net.complete:
        share = claims.number("joined the # % of ROI pairs with the largest partial correlations") / 100
        assert share == pytest.approx(net.edge_share)


def compare_steps(claims, used):
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


def compare_optimiser(claims, used):
    (decay,) = set(used.decays)
    if not decay:  # both are Adam then
        assert " with Adam and a batch" in claims
        return
    name = {"Adam": r"with Adam \(L2 penalty #\)", "AdamW": r"with AdamW \(weight decay #\)"}[used.optimiser]
    assert claims.number(name) == pytest.approx(decay, rel=1e-6)


def compare_rates(claims, used):
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


def between(start, end, share, cosine):
    return start + (end - start) * ((1 - np.cos(np.pi * share)) / 2 if cosine else share)


def compare_momentum(claims, used):
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


def compare_dropout(claims, used):
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


def compare_losses(claims, used):
    weights = loss_weights(used.fit.net)
    if used.mixing:
        weights.pop("consistency_weight", None)
    if getattr(used.fit.net, "cls_token", "local") == "none":
        weights.pop("cwr_weight")
    assert weights == {name: claims.number(pattern) for pattern, name in LOSSES.items() if name in weights}
    assert [pattern for pattern, name in LOSSES.items() if pattern[:20] in claims and name not in weights] == []


def compare_regularisation(claims, used):
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


def compare_choice(claims, used):
    losses = used.history["validation_loss"].to_numpy()
    if "last epoch" in claims:
        assert used.info["epoch"] == len(losses)
    else:
        assert "epoch with the lowest validation loss" in claims
        assert used.info["epoch"] == len(losses) - losses[::-1].argmin()  # latest of equals


def compare_test_scans(claims, used):
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


def compare_architecture(claims, used):
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


class Witness:
    """A training of fold 0, and what its steps used.

    Attributes
    ----------
    fit : Fit
        Finished: `fit.net` has the weights of the chosen epoch.
    batches : list of list of int
        Training scans of each step.
    rates, momenta, decays : list of float
        Learning rate, Adam's first beta and weight decay of each step.
    optimiser : str
    crops : list of (array, array, list of int)
        The whole series (time, rois) of a training scan, the crop that was drawn from it, and the lengths of all scans
        from which crops were drawn at the same time.
    passes : list of (int, list of int)
        Volumes of what the network was given, and how many of each scan in it were its own.
    smoothing, clips, mixing, averaging : set of float
        Label smoothing, norms, parameters of Beta distributions, decays of the moving average.
    precisions : set of torch.dtype
        Of the logits in training.
    """

    def __init__(self, monkeypatch):
        self.batches, self.rates, self.momenta, self.decays, self.crops, self.passes = ([] for _ in range(6))
        self.smoothing, self.clips, self.mixing, self.averaging, self.precisions = (set() for _ in range(5))
        self._patch(monkeypatch)

    def _patch(self, monkeypatch):
        for owner, name, note in (
            (loop.Fit, "run", lambda fit: setattr(self, "fit", fit)),
            (loop.Fit, "_inputs", lambda fit, batch, *_: self.batches.append(batch.tolist())),
            (loop.Fit, "_step", self._note_step),
            (torch.nn.utils, "clip_grad_norm_", lambda _, norm: self.clips.add(norm)),
        ):
            monkeypatch.setattr(owner, name, _noting(getattr(owner, name), note))
        generator = batches.mixing_generator
        monkeypatch.setattr(batches, "mixing_generator", lambda *key: _Draws(generator(*key), self.mixing))
        entropy, crops, ahead = torch.nn.functional.cross_entropy, Scans.crops, loop.forward

        def cross_entropy(*rest, label_smoothing=0.0):
            if torch.is_grad_enabled():
                self.smoothing.add(label_smoothing)
            return entropy(*rest, label_smoothing=label_smoothing)

        def crops_of(scans, which, length, random):
            x = crops(scans, which, length, random)
            for i, crop in zip(which.tolist(), x, strict=True):
                of_batch = [scans.lengths[i] for i in which.tolist()]
                self.crops.append((scans.whole([i])[0].numpy(), crop.numpy(), of_batch))
            return x

        def forward(net, x, lengths, covariates):
            self.passes.append((x.shape[1], list(lengths)))
            output = ahead(net, x, lengths, covariates)
            self.precisions.add(output.logits.dtype)
            return output

        monkeypatch.setattr(torch.nn.functional, "cross_entropy", cross_entropy)
        monkeypatch.setattr(Scans, "crops", crops_of)
        monkeypatch.setattr(loop, "forward", forward)
        monkeypatch.setattr(loop.Fit, "_step", self._following_average(loop.Fit._step))

    def _note_step(self, fit, optimizer, *rest):
        (group,) = optimizer.param_groups
        self.rates.append(group["lr"])
        self.momenta.append(group["betas"][0])
        self.decays.append(group["weight_decay"])
        self.optimiser = type(optimizer).__name__

    def _following_average(self, step):
        """Find the decay of the moving average from the weights before and after a step."""

        def watched(fit, *rest):
            before = _vector(fit.average.module) if fit.average and int(fit.average.n_averaged) else None
            result = step(fit, *rest)
            if before is not None:
                now, weights = _vector(fit.average.module), _vector(fit.net)
                far = (before - weights).abs().argmax()
                self.averaging.add(float((now - weights)[far] / (before - weights)[far]))
            return result

        return watched

    def train(self, toy, model, dataset, folder):
        """Train fold 0 and read its files."""
        (error,) = train_folds(*toy, model, dataset, [Training(0, 0, folder)], device="cpu", progress=False)
        assert error is None
        self.series = SeriesCache(toy[0])
        self.history = read_table(folder / "history.tsv")
        self.info = read_json(folder / "checkpoint.json")
        self.predictions = read_table(folder / "predictions.tsv", text=("scan_id",)).set_index("scan_id")

    def series_of(self, scan):
        """Return the whole series of a scan, (time, rois)."""
        return self.series.finite_series(list(self.series.index["scan_id"]).index(scan))


class _Draws:
    """A generator of random numbers that notes the parameters of Beta distributions."""

    def __init__(self, random, seen):
        self.permutation, self._random, self._seen = random.permutation, random, seen

    def beta(self, a, b):
        self._seen.update((a, b))
        return self._random.beta(a, b)


def _noting(real, note):
    def noted(*rest, **options):
        note(*rest, **options)
        return real(*rest, **options)

    return noted


def _vector(net):
    return torch.cat([parameter.detach().double().flatten() for parameter in net.parameters()])


def dropout_rates(net):
    """Return all rates of dropout of a network that are not 0, by the place of the number in it."""
    rates = {}
    for path, module in net.named_modules():
        for name, value in vars(module).items():
            if (name == "p" or "drop" in name) and type(value) in (int, float) and value:
                rates[f"{path}.{name}"] = float(value)
    return rates


def loss_weights(net):
    """Return the weights of a network's own losses that are not 0, by their names."""
    return {name: value for name, value in vars(net).items() if name.endswith("_weight") and value}


COMPARISONS = [compare for name, compare in list(globals().items()) if name.startswith("compare_")]
