"""Nothing that is read can run code, leave its folder, or reach a shell; nothing that is written tells a secret."""

from __future__ import annotations

import json
import pickle
import re
import shlex
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt import config as configuration
from bolt.atlases.description import describe_atlas
from bolt.config import ROOT, Config, Dataset, Model, load_dataset
from bolt.datasets import index
from bolt.datasets.hcp import HcpScan, _is_onsets, _read_people
from bolt.io.download import fetch
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import SAFE_LOADER, _Loader, read_yaml
from bolt.io.names import FOLDER, NAME, PREFIX, is_name, is_path
from bolt.io.series_files import read_series
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint, load_resume, save_checkpoint
from bolt.training.features import load_trained
from bolt.workflow.checks import check_names
from tests.snake import series_dataset, write_yaml

HOSTILE = [
    "../../x", "/etc/passwd", "..", ".hidden", "a;touch pwned", "$(touch pwned)", "`touch pwned`", "a|b", "a>pwned",
    "a b", "a'b", 'a"b', "a\nb", "--config", "-x", "~root", "{scan}", "*", "a\x00b", "a\\b", "x" * 300, "",
]  # fmt: skip


# ---- code


def test_no_array_is_unpickled():
    """Whatever else can run code is refused by ruff: `pyproject.toml` names it."""
    for file in (ROOT / "bolt").rglob("*.py"):
        assert "allow_pickle=True" not in file.read_text(encoding="utf-8"), file


class Evil:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return Path.touch, (Path(self.mark),)


LINEAR = {"model": {"model": "lstm", "hyper": {"hidden": 4, "n_layers": 1}}, "n_rois": 5, "classes": ["a", "b"]}


@pytest.fixture
def saved(tmp_path):
    about = LINEAR | {"model": {"model": "meanmlp", "hyper": {}}}
    net = create_model("meanmlp", 5, 2)
    save_checkpoint(tmp_path, net, about)
    return tmp_path, net, about


def test_a_pickle_in_a_checkpoints_place_is_an_error(saved, tmp_path):
    folder, net, _ = saved
    load_checkpoint(folder)
    for name in ("checkpoint.safetensors", "resume.safetensors"):
        (folder / name).write_bytes(pickle.dumps(Evil(tmp_path / "pwned")))
    for load in (load_checkpoint, load_trained):
        with pytest.raises(DataError, match="not a readable checkpoint"):
            load(folder)
    assert load_resume(folder, "", net, None) is None
    np.save(tmp_path / "series.npy", np.array([Evil(tmp_path / "pwned")], dtype=object), allow_pickle=True)
    with pytest.raises(DataError):
        read_series(tmp_path / "series.npy")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"model": "os.system", "hyper": {}}},
        {"model": {"model": "../../evil", "hyper": {}}},
        {"model": {"model": "_registry", "hyper": {}}},
        {"model": {"model": "meanmlp", "hyper": {"__class__": "x"}}},
        {"model": {"model": ["meanmlp"], "hyper": {}}},
        {"model": "meanmlp"},
        {"n_rois": 10**12},
        {"n_rois": -1},
        {"n_rois": "5"},
        {"classes": 7},
        {"classes": ["a"] * 1000},
        {"covariates": [{"column": "__import__('os')"}]},
        *({missing: None} for missing in ("model", "n_rois", "classes")),
    ],
)
def test_odd_and_missing_words_beside_weights_are_an_error(saved, change):
    folder, _, about = saved
    (folder / "checkpoint.json").write_text(json.dumps({k: v for k, v in (about | change).items() if v is not None}))
    words = "not a model's description" if None in change.values() else "checkpoint"
    with pytest.raises(DataError, match=words):
        load_checkpoint(folder)


TAGS = ["!!python/object/apply:os.system", "!!python/object/new:os.system", "!!python/name:os.system"]


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("kind", [*configuration.KINDS, "configuration", "atlas"])
def test_yaml_makes_no_objects(tmp_path, tag, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "atlas.yaml"
    file.write_text(f"name: {tag} ['touch pwned']\n")
    read = {"configuration": configuration.load_config, "atlas": lambda path: describe_atlas(str(Path(path).parent))}
    load = read.get(kind) or (lambda path: configuration._load(kind, path))
    with pytest.raises(BoltError, match="not valid YAML"):
        load(str(file))
    with pytest.raises(DataError):
        read_yaml(file)
    assert issubclass(_Loader, SAFE_LOADER) and not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("tag", TAGS)
def test_nor_does_the_configuration_that_snakemake_reads(tmp_path, tag, monkeypatch):
    """Snakemake evaluates what a file with `__use_yte__: true` says: docs/reliability.md warns of foreign files."""
    from snakemake.common.configfile import load_configfile

    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(f"dataset: {tag} ['touch pwned']\n")
    with pytest.raises(Exception, match="not valid JSON or YAML"):
        load_configfile("config.yaml")
    assert not (tmp_path / "pwned").exists()


# ---- names


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_paths_are_none(text):
    assert not is_name(text) and not re.fullmatch(FOLDER, text) and not re.fullmatch(PREFIX, text)
    harmless = ("../../x", "/etc/passwd", "..", ".hidden", "x" * 300)
    assert is_path(text) is (text in harmless)


@settings(max_examples=60)
@given(st.one_of(st.from_regex(NAME, fullmatch=True), st.text(max_size=20), st.sampled_from(HOSTILE)))
def test_a_name_stays_in_its_folder_and_means_itself_to_a_shell(text):
    if is_name(text):
        assert Path("/results", text).resolve() == Path("/results") / text
        assert not text.startswith("-") and len(shlex.split(text)) == 1
        assert shlex.quote(text) == text or not text.isascii()
        assert len(f".{2**22}-host.{text}_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz".encode()) < 255


@given(st.one_of(st.from_regex(r"/?[\w./$;`'\"~ -]+", fullmatch=True), st.text(max_size=20)))
def test_a_place_means_itself_to_a_shell(text):
    assert not is_path(text) or shlex.quote(text) == text or not text.isascii()


def test_bash_takes_fit_names_as_they_are():
    names = ["sub-01_task-rest", "Müller.1+2", "日本", "a_b-c"]
    assert all(map(is_name, names))
    command = ["bash", "-c", f"printf '%s\\n' {' '.join(names)}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:-1] == names


BASE = {"dataset": "series", "atlases": ["cc200"], "models": ["svm"]}


@pytest.mark.parametrize("text", [one for one in HOSTILE if one and "/" not in one])
def test_hostile_names_in_the_configuration_are_refused(text, tmp_path):
    changes = [
        {"dataset": f"{text}.yaml"},
        {"atlases": [f"atlases/{text}"]},
        {"denoise": f"{text}.yaml"},
        {"preprocess": {"space": text}},
    ]
    for change in changes:
        with pytest.raises(ConfigError):
            check_names(Config(**BASE | change), load_dataset("series"))
    with pytest.raises(ConfigError, match="'name'"):
        configuration.parse(Model, {"name": text, "model": "svm"}, "m.yaml")
    with pytest.raises(ConfigError):
        configuration.parse(Dataset, {"name": "d", "source": "abide", "label": "x", "abide": {"phenotypes": text}}, "d")


@pytest.mark.parametrize(
    "place", ["a;touch pwned", "$(touch pwned)", "`x`", "my results", "-x", "~/x", "a'b", "a\nb", "{x}"]
)
def test_hostile_folders_are_refused(place):
    for key in ("results", "work"):
        with pytest.raises(ConfigError, match=f"'{key}' is not fit"):
            check_names(Config(**BASE, paths={key: place}), load_dataset("series"))


def test_hostile_scans_of_a_table_are_excluded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [one for one in HOSTILE if one and "\x00" not in one]
    config = configuration.load_config(series_dataset(tmp_path, len(names) + 2))
    table = pd.read_csv("series/scans.tsv", sep="\t")
    table["scan_id"] = [*names, *table.subject[-2:]]
    table["file"] = [str(tmp_path / "series" / name) for name in table.file]  # absolute inputs are nobody's harm
    table.to_csv("series/scans.tsv", sep="\t", index=False)
    reasons = index(config, load_dataset(config.dataset)).set_index("scan_id").exclude_reason.dropna()
    assert len(reasons) == len(names) and reasons.nunique() == 1
    assert "cannot be used in file names and commands. Use" in reasons.iloc[0] and "'scan_id'" in reasons.iloc[0]
    assert not Path("pwned").exists()


@pytest.mark.parametrize("name", ["sub-01_task-$(touch pwned)", "sub-01_task-a;b", "sub-01_task-r e", "sub-01_run-'1'"])
def test_hostile_file_names_in_bids_are_excluded(name, tmp_path, monkeypatch):
    from tests.workflow.test_dag import bids_config

    monkeypatch.chdir(tmp_path)
    config = configuration.load_config(bids_config(tmp_path))
    image = Path("bids/sub-01/func/sub-01_task-rest_bold.nii.gz")
    image.rename(image.with_name(f"{name}_bold.nii.gz"))
    found = index(config, load_dataset(config.dataset))
    fit = found[found.exclude_reason.isna()]
    assert len(fit) == 7 and all(map(is_name, fit.scan_id))


@pytest.mark.parametrize("number", ["../../x", "1;touch pwned", "$(x)", "1 2", "-1"])
def test_hostile_subjects_of_hcp_are_refused(number, tmp_path):
    pd.DataFrame({"Subject": ["100307", number]}).to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(DataError, match="more than letters and digits"):
        _read_people(tmp_path / "people.csv")


def test_names_of_a_buckets_listing_stay_in_their_folder():
    scan = HcpScan("100307", "MOTOR", None, "LR")
    assert _is_onsets(f"{scan.folder}/EVs/lh.txt", scan)
    for name in ("../../../../../../../etc/cron.d/x.txt", "a/b.txt", ".x.txt", "..txt", "a\n.txt", "$(x).txt"):
        assert not _is_onsets(f"{scan.folder}/EVs/{name}", scan)


def test_every_wildcard_that_reaches_a_shell_is_a_name():
    files = [ROOT / "Snakefile", *sorted((ROOT / "workflow/rules").glob("*.smk"))]
    said = "".join(path.read_text() for path in files)
    used = set(re.findall(r"\{wildcards\.(\w+)\}", said))
    assert {"scan", "atlas", "model", "seed", "fold", "folder"} <= used
    for name in used:
        known = set(re.findall(rf"^\s*{name}=(.*),$", said, re.MULTILINE))
        assert known & {"NAME", "FOLDER", "PREFIX", r'r"\d+"', '"per-fold|paper"'}, (name, known)
    shells = "".join(re.findall(r"shell:\n((?:\s+f?\".*\"\n)+)", said))
    shells += said[said.index("CONFIG = ") : said.index("include:")]  # what the commands share
    fields = set(re.findall(r"\{([a-z_]+(?:\.\w+)?)\}", shells.replace("{{", "{").replace("}}", "}")))
    assert {"params.config", "log", "threads", "resources.attempt", "wildcards.scan", "wildcards.fold"} <= fields
    ours = {"params.config", "log", "threads", "params.folds", "params.minimum_volumes"}
    ours |= {"resources.attempt", "resources.mem_mb", "resources.runtime"}
    assert {field for field in fields if not field.startswith("wildcards.")} <= ours, fields


# ---- pages


def test_text_on_pages_is_escaped():
    from bolt.report.html import page_environment

    assert page_environment().from_string("{{ x }}").render(x="<script>") == "&lt;script&gt;"
    templates = "".join(path.read_text() for path in (ROOT / "bolt/report/templates").iterdir())
    drawn_here = {"figure.drawing|safe", "strip.drawing|safe"}
    assert set(re.findall(r"[\w.]+\s*\|\s*safe", templates)) == drawn_here


def test_the_title_of_a_view_is_escaped(tmp_path, monkeypatch):
    """nilearn puts it on the page as it is."""
    from bolt.report.figures import brains

    for drawing in ("view_img", "view_surf"):
        monkeypatch.setattr(brains.plotting, drawing, lambda *_, title, **__: SimpleNamespace(html=title))
    rows = {
        "class": ["<script>", "b"],
        "value": [1, 1],
        "weight": [0.5, -0.5],
        "selected": [True, True],
        "selection_frequency": [1, 1],
    }
    image = nib.Nifti1Image(np.ones((2, 2, 2), np.int16), np.eye(4))
    made = brains.write_views(pd.DataFrame(rows), image, ["<script>", "b"], tmp_path / "view")
    assert [file.read_text() for files in made.values() for file in files] == ["red: &lt;script&gt;, blue: b"] * 2


# ---- credentials

CANARY = "kanarienvogel"


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_addresses_with_passwords_are_refused_and_not_repeated(scheme, tmp_path):
    address = f"{scheme}://me:{CANARY}@mirror.org/abide"
    about = {"name": "d", "source": "abide", "label": "x"}
    places = (
        {"abide": {"base": address}},
        {"hcp": {"bucket": {"endpoint": address}}},
        {"description": f"see {address}"},
    )
    write_yaml(tmp_path / "atlas.yaml", {"name": tmp_path.name, "spaces": ["x"], "url": address})
    readers = [partial(configuration.parse, Dataset, about | more, "d.yaml") for more in places]
    for read in (*readers, partial(describe_atlas, str(tmp_path))):
        with pytest.raises(ConfigError, match="password") as told:
            read()
        assert CANARY not in str(told.value)


def test_a_proxys_password_is_not_repeated(tmp_path, monkeypatch):
    for proxy in (f"http://me:{CANARY}@127.0.0.1:9", f"http://me:x@{CANARY}@127.0.0.1:9", f"http://127.0.0.1:{CANARY}"):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setattr(urllib.request, "_opener", None)  # it keeps the proxies of the first call
        with pytest.raises(BoltError) as told:
            fetch("http://example.org/a.nii.gz", tmp_path / "a.nii.gz", tries=1)
        assert CANARY not in str(told.value), proxy
    assert not list(tmp_path.iterdir())


def test_logs_and_tracebacks_are_masked(tmp_path):
    code = "import logging, sys; from bolt.cli import main as cli\n"
    code += f"url = 'https://host/a?X-Amz-Signature={CANARY}'\n"
    code += "def run(options): logging.getLogger('bolt').warning('from %s', url); raise RuntimeError(url)\n"
    code += "cli.run = run; cli.main(['index'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "X-Amz-Signature=***" in done.stderr and "RuntimeError" in done.stderr
    assert done.stderr.replace(f"'{code}'", "").count(CANARY) == 0, done.stderr
