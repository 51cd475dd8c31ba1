"""Requirements of every model, tested for all files in config/models."""

import re

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bolt.cli.lists import FAMILIES
from bolt.config import load_model
from bolt.explain.relevance import relevance
from bolt.io.errors import DataError
from bolt.io.files import read_table
from bolt.models.attention import native
from bolt.models.bolt import BolT
from bolt.models.parts import masks
from bolt.models.registry import FROM_FILE, create_model, inputs_of, known_models, shortest_of
from bolt.series.cache import SeriesCache
from bolt.training.runner import Training, load_checkpoint, predict, train_folds
from tests.models.conformance import ALL, AT_ONCE, NOT_REACHED, SMALL, TORCH, labelled, loss_of, make, small
from tests.training.test_runner import DATASET, write_toy


def test_every_file_in_the_folder_of_models_is_configured():
    ours = set(known_models()).difference(FROM_FILE)
    assert {load_model(name).model for name in ALL} == ours
    assert set(SMALL) == ours, "tests/models/conformance.py knows other models than bolt/models"


@pytest.mark.parametrize("name", ALL)
def test_its_configuration_says_what_it_is(name):
    model = load_model(name)
    assert model.title and model.description and model.family in FAMILIES
    assert not model.description.endswith(".") and len(model.description) <= 160


# ---- torch models ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize(
    ("batch", "time", "n_rois", "n_classes"), [(1, 61, 12, 2), (3, 37, 13, 7), (1, None, 9, 1), (2, 30, 12, 2)]
)
def test_shapes(name, batch, time, n_rois, n_classes):
    """Any length from the shortest on, any number of ROIs and classes, and a training batch of one scan."""
    net = make(name, n_rois, n_classes)
    x = torch.randn(batch, time or net.min_length, n_rois)
    for training in (True, False):
        output = net.train(training)(x)
        assert output.logits.shape == (batch, n_classes) and output.cls.shape[0] == batch
        assert output.logits.isfinite().all()
        assert all(term.ndim == 0 and term.isfinite() for term in output.losses.values())
    if time is None:
        whole_loss(net.train()(x)).backward()
        assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)
    if time is None and net.min_length > 2:
        with pytest.raises(DataError, match=f"{net.min_length - 1} volumes, but the model needs at least"):
            net(x[:, 1:])


@pytest.mark.parametrize("name", [name for name in TORCH if name != "gc_lstm"])  # whose window follows from the data
def test_the_shortest_scan_is_known_before_it_is_built(name):
    model = small(name)
    assert shortest_of(model.model, model.hyper) == make(name, 6, 2).min_length


def whole_loss(output):
    return output.logits.float().square().sum() + sum(output.losses.values())


@pytest.mark.parametrize("name", TORCH)
def test_gradients_reach_every_parameter(name):
    net = make(name, 12, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    reached = dict.fromkeys(dict(net.named_parameters()), 0.0)
    for step in range(4):  # a weight that starts at zero may block others in the first step
        x, labels = labelled(6, 40, 12, 3, seed=step)
        optimizer.zero_grad()
        loss_of(net.train(), x, labels).backward()
        for key, parameter in net.named_parameters():
            if parameter.grad is not None:
                assert parameter.grad.isfinite().all(), key
                reached[key] += float(parameter.grad.abs().sum())
        optimizer.step()
    assert tuple(key for key, total in reached.items() if total == 0) == NOT_REACHED.get(load_model(name).model, ())


@pytest.mark.parametrize("name", TORCH)
def test_its_output_for_a_scan_depends_on_that_scan_alone(name):
    net = make(name, 12, 2)
    with torch.no_grad():
        for step in range(2):  # so that running statistics differ from their initial values
            net.train()(torch.randn(4, 40, 12, generator=torch.Generator().manual_seed(step)))
        net.eval()
        x = torch.randn(5, 44, 12, generator=torch.Generator().manual_seed(9))
        together = net(x).logits
        assert torch.equal(net(x).logits, together)
        torch.testing.assert_close(net(x[2:3]).logits, together[2:3], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(net(x.flip(0)).logits, together.flip(0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TORCH)
def test_it_learns_what_it_should_be_able_to(name):
    """Which ROIs move together, and more than others; their means say nothing."""
    net = make(name, 8, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    new, truth = labelled(60, 40, 8, 2, seed=1000)
    for step in range(1, 161):
        loss = loss_of(net.train(), *labelled(16, 30, 8, 2, seed=step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            with torch.no_grad():
                share = (net.eval()(new).logits.argmax(1) == truth).float().mean()
            if share > 0.9:
                return
    pytest.fail(f"{share:.0%} of new scans classified correctly after {step} steps")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("conformance"))


@pytest.mark.parametrize("name", TORCH)
def test_a_fold_is_trained_and_its_checkpoint_predicts_the_same(name, toy, tmp_path):
    """With the model's training settings, on eight scans in batches of seven, so that the last batch has one scan."""
    model = small(name)
    training = model.training.model_copy(update={"epochs": 1, "batch_size": 7})
    model = model.model_copy(update={"training": training})
    assert train_folds(*toy, model, DATASET, [Training(1, 0, tmp_path)], device="cpu") == [None]
    table, cache = read_table(tmp_path / "predictions.tsv"), SeriesCache(toy[0])
    np.testing.assert_allclose(table["p_no"] + table["p_yes"], 1, atol=1e-6)
    again = predict(load_checkpoint(tmp_path)[0], cache, range(len(cache)))
    np.testing.assert_allclose(again, table[["p_no", "p_yes"]], rtol=0, atol=1e-12)


# ---- models fitted at once -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("n_classes", [2, 7])
def test_a_model_fitted_at_once(name, n_classes):
    model = small(name)
    settings = model.hyper | ({"n_covariates": 10} if model.covariates else {})
    random = np.random.default_rng(0)
    labels = np.arange(70) % n_classes
    features = random.standard_normal((70, 10)).astype(np.float32)
    features[np.arange(70), labels] += 4
    if inputs_of(model.model) == "connectivity":
        features /= 20  # so that they are correlations
    fitted = create_model(model.model, 5, n_classes, **settings)
    fitted.fit(features, labels, np.arange(70), seed=3)
    probabilities = fitted.probabilities(features)
    assert probabilities.shape == (70, n_classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(fitted.probabilities(features[:1]), probabilities[:1], rtol=1e-6)
    if name != "majority":
        assert (probabilities.argmax(axis=1) == labels).mean() > 0.9
    again = create_model(model.model, 5, n_classes, **settings)
    again.load_state({key: np.array(value) for key, value in fitted.state().items()})
    np.testing.assert_array_equal(again.probabilities(features), probabilities)


class _Operations(TorchDispatchMode):
    """Collects the names of torch's operations, and of those that draw from the generator of the device `meta`."""

    def __init__(self):
        super().__init__()
        self.names, self.random = set(), set()

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        self.names.add(operation.overloadpacket._qualified_op_name.removeprefix("aten::"))
        result = operation(*arguments, **(keywords or {}))
        draws = torch.Tag.nondeterministic_seeded in operation.tags
        if draws and any(isinstance(part, torch.Tensor) and part.is_meta for part in tree_leaves(result)):
            self.random.add(str(operation))
        return result


NOT_DETERMINISTIC = re.compile(
    "avg_pool3d|adaptive_(avg_pool[23]d|max_pool2d)_backward|fractional|max_unpool|upsample|reflection_pad|nll_loss2d|"
    "_ctc_loss|^put_?$|histc|^median|^nanmedian|kthvalue|grid_sampl|^cumsum|embedding_bag|_cdist_backward"
)
"""What torch refuses on a GPU in deterministic mode (`torch.use_deterministic_algorithms`), and kthvalue, whose
positions depend on the order of threads."""


@pytest.mark.parametrize("name", TORCH)
def test_a_gpu_can_train_and_explain_it_deterministically(name, monkeypatch):
    """The devices' operations have the same names, so those of a CPU show what a GPU would be asked for."""
    monkeypatch.setattr(native, "usable", lambda q: False)
    net = make(name, 12, 2)
    x = torch.randn(3, max(40, net.min_length), 12)
    with _Operations() as operations:
        whole_loss(net(x)).backward()
        net.eval()
        net(x)
        if isinstance(net, BolT):
            relevance(net, x)
    assert not list(filter(NOT_DETERMINISTIC.search, operations.names))


@pytest.mark.parametrize("name", TORCH)
def test_bfloat16_without_the_kernel_has_gradients_of_single_precision(name, monkeypatch):
    """As on a GPU: products are rounded, weights and their gradients are not."""
    monkeypatch.setattr(native, "usable", lambda q: False)
    net = make(name, 12, 2)
    with torch.autocast("cpu", torch.bfloat16):
        output = net(torch.randn(3, max(40, net.min_length), 12))
    whole_loss(output).backward()
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    assert gradients and all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", TORCH)
def test_it_never_waits_for_the_host_and_draws_there(name, training):
    """Tensors without values: what would read one, or mix devices, raises; random numbers are those of every device."""
    net = make(name, 12, 2).to("meta").train(training)
    x = torch.randn(3, net.min_length + 8, 12, device="meta")
    with _Operations() as operations:
        output = net(x)
    assert not operations.random
    whole_loss(output).backward()
    assert {p.grad.device.type for p in net.parameters() if p.grad is not None} == {"meta"}


@pytest.mark.parametrize("name", [name for name in TORCH if make(name, 12, 2).lengths_on_device])
def test_a_step_that_a_gpu_replays_reads_nothing(name):
    """Lengths neither."""
    net = make(name, 12, 2).to("meta").train()
    x, lengths = torch.randn(3, net.min_length + 8, 12, device="meta"), torch.empty(3, dtype=int, device="meta")
    with masks.given_seeds(iter(torch.empty(100, dtype=int, device="meta"))):
        whole_loss(net(x, lengths=lengths)).backward()
    assert {p.grad.device.type for p in net.parameters()} == {"meta"}
