"""As many weights as published, or as the published sizes give."""

import pytest
import torch

from tests.models.conformance import as_configured, size

SIZES = [
    ("bolt_published", 400, {}, 5_942_898 - 800),  # the published code never uses its input norm
    ("swint", 400, {}, 7_869_042),
    ("swint", 400, {"mlp_ratio": 1}, 4_024_242),
    ("longformer", 400, {"crop": 1200}, 10_268_402),
    ("band", 400, {"crop": 1200, "n_layers": 1}, 2_663_426),
    ("band", 400, {"crop": 1200}, 4_241_410),
    ("tff", 400, {}, 103_343_666),
    ("tff", 400, {"hidden": 400, "inner": 1600}, 4_345_202),
    ("ift_net", 400, {}, 6_356_290),
    ("hatnet", 400, {}, 2_811_522),
    ("meanmlp", 400, {}, 64_802),
    ("lstm", 400, {}, 55_618),
    ("cnn_lstm", 400, {}, 253_314),
    ("gc_lstm", 400, {}, 985_410),
    ("stagin", 400, {}, 1_209_804),
    ("stagin", 116, {}, 917_852),
    ("braingnn", 400, {}, 154_082),
    ("braingnn", 200, {}, 93_282),
    ("brainnetcnn", 400, {}, 8_254_876),
    ("brainnetcnn", 400, {"edge_channels": [32, 64], "node_channels": 1}, 1_829_277),  # PyTorch versions that followed
    ("bnt", 400, {}, 13_545_290),
    ("bnt", 200, {}, 3_960_890),
]


@pytest.mark.parametrize(("name", "n_rois", "changed", "count"), SIZES)
def test_as_many_weights_as_published(name, n_rois, changed, count):
    with torch.device("meta"):
        assert size(as_configured(name, n_rois, 2, **changed)) == count
