"""What sections show of made-up tables, word by word: captions, warnings, tables, and which pictures."""

import re

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import COHORT_COLUMNS, DUPLICATES, WARNING_COLUMNS
from bolt.config import Config
from bolt.config.study import Study
from bolt.explain.tasks import ALIGNMENT_COLUMNS, BLOCK_COLUMNS, TASK_COLUMNS
from bolt.explain.trust.faithfulness import AREA_COLUMNS, CURVE_COLUMNS
from bolt.io.files import read_table, write_json, write_table
from bolt.jobs.provenance import provenance_path
from bolt.report.html import Table, Text
from bolt.report.pages.cohort import cohort_section
from bolt.report.pages.explanation import connections_blocks, tasks_blocks
from bolt.report.pages.trust import faithfulness_blocks, landmarks_blocks, sanity_blocks, stability_blocks
from tests.report.before import as_before
from tests.report.pages import test_moments as of_moments
from tests.report.pages.test_regions import made_up
from tests.report.pages.test_trust import checked, folds_table, tables
from tests.report.results import ATLAS, first_run, make_results, settings, words_only


def shown(title, blocks):
    """Return blocks as text, below a title; files without their folders."""
    lines = [f"## {title}"]
    for block in blocks:
        if isinstance(block, Text):
            lines.append(f"{'WARNING' if block.warning else 'TEXT'} {block.text}")
        elif isinstance(block, Table):
            lines += [f"TABLE {block.caption} ({block.file.name})", block.frame.to_csv(sep="|", index=False)]
        else:
            lines.append(f"PICTURE {block.caption} ({block.file.name}: {block.file.is_file()})")
    return re.sub(r"(?<!\w)/\S+/", "", "\n".join(lines))


def explained(folder, blocks, table=None, **config):
    """Return the blocks of a run, whose explanation holds nothing but `table`; before it is there, there are none."""
    folder.mkdir()
    study = settings(folder, **config)
    run = first_run(study)
    assert blocks(study, run) == []
    if table is not None:
        name = "sanity" if blocks is sanity_blocks else "stability"
        write_table(table, run.explanation / f"{name}.tsv", dict.fromkeys(table, ""))
    return study, run


@words_only()
def test_trust(tmp_path):
    parts = []
    for end, change in (
        (0.052, {}),
        (-0.603, {"independent": False}),
        (0.052, {"again": None}),
        (0.052, {"again": -0.1}),
    ):
        place = explained(tmp_path / f"sanity {end} {change}", sanity_blocks, checked(end, **change))
        parts.append(shown(f"sanity: correlation falls to {end} {change}", sanity_blocks(*place)))
    for verdict in ("not shown", "not done"):
        table = checked(0.052)
        ends = table["verdict"].notna()
        table["note"] = table["note"].astype(object)
        table.loc[ends, ["verdict", "note"]] = verdict, "a reason"
        place = explained(tmp_path / verdict, sanity_blocks, table)
        parts.append(shown(f"sanity: {verdict}", sanity_blocks(*place)))
    two = folds_table(2, ["a", "b"])
    kinds = {
        "eleven folds": folds_table(11, ["a", "b", "c"]),
        "halves alone": two[two["what"] == "halves"],
        "none": two[:0],
    }
    for name, table in kinds.items():
        place = explained(tmp_path / name, stability_blocks, table)
        parts.append(shown(f"stability: {name}", stability_blocks(*place)))
    for gain, n in ((0.2, 12), (0.0, 12), (-0.2, 12), (0.2, 4)):
        study, run = explained(tmp_path / f"faithful {gain} {n}", faithfulness_blocks)
        lines, areas = tables(gain, n)
        write_table(lines[list(CURVE_COLUMNS)], run.explanation / "faithfulness.tsv", CURVE_COLUMNS)
        write_table(areas[list(AREA_COLUMNS)], run.explanation / "faithfulness_areas.tsv", AREA_COLUMNS)
        parts.append(shown(f"faithfulness: gain {gain}, {n} scans", faithfulness_blocks(study, run)))
    for inner, offsets, samples in ((False, 12, "volumes"), (True, 0, "scans")):
        study, run = explained(tmp_path / samples, landmarks_blocks, explain={"landmark_samples": samples})
        of_moments.landmarks(run.explanation, inner=inner, offsets=offsets)
        parts.append(shown(f"landmarks: {samples}", landmarks_blocks(study, run)))
    as_before("blocks_of_trust.txt", "\n\n".join(parts))


@words_only()
def test_explanation(tmp_path):
    parts = []
    for p, networks in ((0.001, ("default", "visual")), (0.001, ()), (0.2, ())):
        study, run = explained(tmp_path / f"{p} {len(networks)}", connections_blocks)
        made_up(study, p, networks)
        parts.append(shown(f"connections: p {p}, networks {networks}", connections_blocks(study, run)))
    for shift in (0, 5):
        places = {"paths": {"results": tmp_path / str(shift)}, "explain": {"hrf_shift": shift}}
        study = Study.of(Config(dataset="hcp_task", atlases=["aal116"], models=["bolt"], **places))
        run, out = study.runs[0], study.runs[0].explanation
        assert tasks_blocks(study, run) == []
        write_table(pd.DataFrame(columns=list(TASK_COLUMNS)), out / "tasks.tsv", TASK_COLUMNS)
        assert tasks_blocks(study, run) == []  # resting state
        write_table(of_moments.curve("WM", 60), out / "tasks.tsv", TASK_COLUMNS)
        write_table(of_moments.block("WM", "0bk", 5, 20), out / "tasks_blocks.tsv", BLOCK_COLUMNS)
        row = {"class": "WM", "task": "WM", "run": "LR", "trial_type": "0bk", "share_of_time": 0.25, "n_scans": 7}
        row |= {"share_of_importance": 0.5, "ratio": 2.0, "ratio_untrained": 1.1, "p": 0.0002, "p_holm": 0.0004}
        write_table(pd.DataFrame([row]), out / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
        np.save(out / "tasks_series.npy", np.random.default_rng(0).standard_normal((2, 60, 4)).astype(np.float32))
        write_json({"class": "WM", "task": "WM", "run": "LR", "RepetitionTime": 2.0}, out / "tasks_series.json")
        rois = pd.DataFrame({"value": range(1, 5), "name": list("abcd"), "network": list("xxyy"), "hemisphere": "L"})
        write_table(rois, run.cache / "rois.tsv", dict.fromkeys(rois, ""))
        parts.append(shown(f"tasks: shifted by {shift} s", tasks_blocks(study, run)))
    as_before("blocks_of_explanation.txt", "\n\n".join(parts))


@words_only()
def test_cohort(tmp_path):
    study = make_results(tmp_path, n=12, everything=False)
    layout = study.layout
    rows = [("scans", 870, 871), ("subjects, label autism", 403, 403)]
    write_table(pd.DataFrame(rows, columns=list(COHORT_COLUMNS)), layout.cohort, COHORT_COLUMNS)
    odd = read_table(layout.cache(ATLAS) / "warnings.tsv")
    assert odd.groupby("scan_id").warning.first().str.contains("of 160 ROIs ").tolist() == [True] * 3
    write_table(odd, layout.warnings, WARNING_COLUMNS)
    inputs = {str(layout.config): "0", "/data/study/participants.tsv": "1"}
    write_json({"inputs": inputs}, provenance_path(layout.scans))
    scans = read_table(layout.scans)
    scans.loc[scans["label"] == "patient", "age"] += 60
    parts = [shown("head motion is unknown, age differs", cohort_section(study, scans.iloc[:-1]))]
    assert read_table(layout.tables / "cohort_tests.tsv")["measure"].tolist() == ["Site", "Sex", "Age", "Head motion"]
    for file, name in ((layout.warnings, "grouped"), (layout.exclusions, "excluded")):
        table = read_table(file)
        write_table(table.assign(stage=DUPLICATES), file, dict.fromkeys(table, ""))
        parts.append(shown(f"copies are {name}", cohort_section(study, scans.iloc[:-1])))
    numbers = Study(study.config, study.dataset.model_copy(update={"classes": None, "label": "score"}))
    scans["label"] = np.linspace(1, 9, len(scans))
    parts += [shown("numbers", cohort_section(numbers, scans)), shown("nobody", cohort_section(study, scans[:0]))]
    as_before("blocks_of_cohort.txt", "\n\n".join(parts))
