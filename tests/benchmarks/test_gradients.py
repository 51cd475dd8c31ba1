"""Curves by different gradients are compared scan by scan, and the right ones with each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from benchmarks import gradients
from bolt.explain.relevance import importance
from tests.explain.runs import untrained_fold

PAIRS = {
    "logit, minus_loss": ("predicted", "logit", "predicted", "minus_loss"),
    "logit, loss": ("predicted", "logit", "predicted", "loss"),
    "logit, other class": ("predicted", "logit", "other", "logit"),
    "loss, other class": ("predicted", "loss", "other", "logit"),
}


def test_each_scan_is_compared_with_itself_and_regularisation_is_left_out_where_that_is_said(tmp_path):
    cache, folder, model = untrained_fold(tmp_path)
    table = gradients.compare(cache, folder)
    assert set(table["pair"]) == {*PAIRS, "logit, minus_loss without regularisation"}
    assert (table.groupby("pair").size() == 11).all() and table["shared"].between(0, 5).all()
    series = [cache.series(i) for i in (7, 0, 3, 10, 1, 2, 4, 5, 6, 8, 9)]  # in the order of predictions.tsv

    def curve(x, which, gradient):
        x = torch.from_numpy(x)[None]
        classes = {"predicted": model(x).logits.argmax(1), "other": model(x).logits.argmin(1)}
        return importance(model, x, classes[which], gradient)[0].detach().numpy()

    for pair, (a, of_a, b, of_b) in PAIRS.items():
        expected = [spearmanr(curve(x, a, of_a), curve(x, b, of_b))[0] for x in series]
        np.testing.assert_allclose(table.loc[table["pair"] == pair, "rho"], expected, atol=0.01, err_msg=pair)
    assert table["chance"].tolist() == [pytest.approx(25 / len(x)) for x in series] * 5
    rho = {pair: part["rho"].to_numpy() for pair, part in table.groupby("pair")}
    whole, without = rho["logit, minus_loss"], rho["logit, minus_loss without regularisation"]
    assert not np.allclose(whole, without) and (without > rho["logit, loss"]).all()
