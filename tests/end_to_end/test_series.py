"""The second half of the workflow on a third of the real, labelled ABIDE-I series: every site keeps its share."""

import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from tests.abide import write_series
from tests.shared import shared_data
from tests.snake import QUICK_EXPLANATION, snakemake, write_yaml

MODEL = {
    "model": "bolt",
    "hyper": {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8},
    "training": {"epochs": 2, "warmup_epochs": 1, "learning_rate": 5e-4, "peak_learning_rate": 1e-3},
}


@pytest.mark.slow
def test_one_fold_of_real_abide_series(tmp_path):
    write_series(shared_data("abide1"), tmp_path / "series", n_scans=290)
    example = yaml.safe_load((ROOT / "config/examples/series.yaml").read_text())
    model = write_yaml(tmp_path / "small.yaml", MODEL)
    example |= {"models": [str(model)], "paths": {"atlas_dir": str(shared_data("atlases"))}}
    example |= {"explain": QUICK_EXPLANATION}
    example["folds"]["run"] = [0]
    done = snakemake(tmp_path, config=write_yaml(tmp_path / "config.yaml", example))
    assert done.returncode == 0, done.stdout
    results = tmp_path / "results/series"
    folds = pd.read_csv(results / "folds.tsv", sep="\t")
    assert folds.fold.nunique() == 10 and folds.scan_id.nunique() == 291
    sizes = folds[folds.fold == 0].role.value_counts()
    assert 27 <= sizes["test"] <= 32 and 27 <= sizes["validation"] <= 32
    predictions = pd.read_csv(next(results.rglob("predictions.tsv")), sep="\t")
    assert set(predictions.role) == {"train", "validation", "test"}
    assert predictions[["p_control", "p_autism"]].sum(axis=1).between(0.999, 1.001).all()
    maps = list(results.rglob("*_stat-logodds_statmap.nii.gz"))
    assert len(maps) == 2 and all((results / "report" / name).is_file() for name in ("index.html", "trust.html"))
