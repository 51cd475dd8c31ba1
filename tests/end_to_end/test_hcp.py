"""HCP from a bucket to cache and folds: an S3 service on the loopback interface, and credentials that stay secret."""

import pytest

from bolt.config import ROOT, load_dataset
from bolt.io.files import read_json, read_table, read_yaml
from tests.fake_hcp import serve_s3, write_hcp
from tests.snake import TINY_MODEL, snakemake, write_yaml

PEOPLE = ["100206", "100307", "100408", "101006", "101107"]
TASKS = ["EMOTION", "GAMBLING"]


def configure(folder, endpoint):
    data = load_dataset("hcp_task").model_dump(mode="json", exclude={"name", "abide", "simulate", "expected"})
    data |= {"subjects_table": "unrestricted.csv", "tasks": TASKS, "classes": TASKS, "group": "Family_ID"}
    bucket = {"name": "hcp-openaccess", "prefix": "HCP_1200", "profile": "hcp", "endpoint": endpoint}
    data["hcp"] = {"bucket": bucket, "restricted_table": "restricted.csv"}
    model = write_yaml(folder / "tiny.yaml", TINY_MODEL)
    timing = read_yaml(ROOT / "config/experiments/task_timing.yaml") | {"rows": [{"row": "BolT", "model": str(model)}]}
    keys = {"dataset": str(write_yaml(folder / "hcp_tiny.yaml", data)), "models": [str(model)]}
    keys |= {"experiments": [str(write_yaml(folder / "task_timing.yaml", timing))]}
    keys |= {"atlases": ["dosenbach160"], "folds": {"outer": 3, "side_by_side": True}}
    return write_yaml(folder / "config.yaml", keys | {"explain": {"masked_task": "GAMBLING"}})


@pytest.mark.slow
def test_from_a_bucket_to_cache_and_folds(tmp_path):
    write_hcp(tmp_path, PEOPLE, TASKS)
    (tmp_path / "bucket").mkdir()
    (tmp_path / "HCP_1200").rename(tmp_path / "bucket/HCP_1200")
    cut = tmp_path / "bucket/HCP_1200/100206/MNINonLinear/Results/tfMRI_EMOTION_LR/tfMRI_EMOTION_LR.nii.gz"
    cut.write_bytes(cut.read_bytes()[:100_000])
    env = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "AWS_CONFIG_FILE": str(tmp_path / "none")}
    with serve_s3(tmp_path / "bucket") as service:
        config = configure(tmp_path, service.endpoint)
        service.credentials(tmp_path / "credentials", secret="planted-secret-of-nobody")
        refused = snakemake(tmp_path, "folds", config=config, env=env)
        assert refused.returncode != 0
        assert "s3://hcp-openaccess: the credentials of profile 'hcp' are refused" in refused.stdout
        assert "db.humanconnectome.org" in refused.stdout and "planted" not in refused.stdout
        service.credentials(tmp_path / "credentials")
        done = snakemake(tmp_path, "folds", config=config, env=env)
        assert done.returncode == 0, done.stdout
        nothing_to_do = snakemake(tmp_path, "folds", config=config, env=env)
        assert "Nothing to be done" in nothing_to_do.stdout
        drawn = snakemake(tmp_path, "task_timing", config=config, env=env)
        assert drawn.returncode == 0, drawn.stdout
    results = tmp_path / "results/hcp_tiny"
    scans = read_table(results / "scans.tsv")
    assert len(scans) == 10 and scans.exclude_reason.isna().all()
    assert scans.group[scans.subject.isin(["sub-100307", "sub-100408"])].unique().tolist() == ["F1"]
    excluded = read_table(results / "exclusions.tsv")
    assert excluded.scan_id.tolist() == ["sub-100206_task-EMOTION_dir-LR"] and excluded.stage.tolist() == ["download"]
    assert "cut off or damaged" in excluded.reason[0]
    cache = read_table(results / "cache/dosenbach160/MNI152NLin6Asym-none/index.tsv")
    assert cache["length"].tolist() == [253] + [176, 253] * 4
    folds = read_table(results / "folds.tsv").merge(scans[["scan_id", "group"]].astype(str), on="scan_id")
    sides = folds.groupby(["fold", "group_y"]).role.nunique()
    assert (sides == 1).all()
    assert read_table(results / "tables/paper_cohort.tsv").found.tolist() == [10, 3, 2]
    assert len(list((results / "events").glob("*_events.tsv"))) == 10
    status = tmp_path / "work/hcp_tiny/downloads/sub-100206_task-GAMBLING_dir-LR/status.json"
    assert read_json(status)["state"] == "ok"
    task_timing(tmp_path / "results/paper")
    assert secrets_in(tmp_path, service.secret, service.key, "planted-secret") == []


def task_timing(paper):
    """The paper's Figure 3, which needs events: (a) importance over the tasks, (b) the masked task."""
    curves = read_table(paper / "task_timing.tsv", text=("class", "task", "run"))
    assert sorted(curves["class"].unique()) == TASKS and set(curves["dataset"]) == {"hcp_tiny"}
    text = (paper / "task_timing.md").read_text()
    for part in "ab":
        (picture,) = paper.glob(f"task_timing_hcp_tiny_dosenbach160_tiny-*_{part}.png")
        assert f"]({picture.name})" in text and picture.stat().st_size > 20_000
        assert all(picture.with_suffix(ending).stat().st_size > 5000 for ending in (".svg", ".pdf"))
        words = picture.with_suffix(".svg").read_text()
        events = [name for name in ("fear", "neut", "loss", "win") if f">{name}</text>" in words]
        assert events == (["fear", "neut"] if part == "a" else ["loss", "win"])


def secrets_in(folder, *secrets):
    """Files of the run, apart from the user's own, that hold a secret."""
    own = {folder / "credentials"}
    files = [path for path in folder.rglob("*") if path.is_file() and path not in own and "bucket" not in path.parts]
    assert len(files) > 50 and any("logs" in path.parts for path in files)
    return [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]
