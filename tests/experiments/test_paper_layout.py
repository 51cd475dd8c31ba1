"""Tables with the rows and columns of the paper's, and what the target `paper` makes."""

import re
from pathlib import Path

import pandas as pd

from bolt.config import Config, known, load_dataset, load_experiment
from bolt.evaluate.scores import METRICS
from bolt.experiments.entries import entries
from bolt.experiments.markup import escape, latex, markdown
from bolt.experiments.measured import with_formulas
from bolt.experiments.results import RESULT_COLUMNS
from bolt.experiments.tables import as_in_paper, in_papers_order
from bolt.workflow.run import Run
from tests.experiments.test_entries import configured
from tests.experiments.test_results import PUBLISHED
from tests.paper_list import belongs, listed
from tests.report.before import as_before

PAPER = ["ablation", "brain_maps", "comparison", "complexity", "landmarks", "task_timing", "window_size"]
EXTRAS = ["baselines", "learning_curve", "spectra", "tuned", "tuned_learning_curve", "windows_only"]


def filled(name, *datasets, **keys):
    """Rows of datasets on both atlases, of which each has another number; the last row of each table is the best."""
    found = []
    for dataset in datasets:
        found += entries(Config(dataset=dataset, **keys), load_experiment(name))
    numbered = [(i, entry, k, metric) for i, entry in enumerate(found) for k, metric in enumerate(METRICS)]
    rows = [(e.dataset, e.atlas, e.row, m, (100 + i) / 1000 + k / 10) for i, e, k, m in numbered]
    table = pd.DataFrame(rows, columns=["dataset", "atlas", "row", "metric", "mean"])
    table = table.assign(sd=0.01234, n_folds=10, expected_folds=10, n_scans=100, n_all_scans=100)
    return found, table.reindex(columns=list(RESULT_COLUMNS))


def layout(name, *datasets, **keys):
    found, table = filled(name, *datasets, **keys)
    return as_in_paper(load_experiment(name), found, table)


def test_tables_have_the_papers_rows_columns_marks_and_daggers():
    """As in the paper, also where a row lacks folds; two datasets that are the same of the paper keep their names."""
    [copies, _] = layout("comparison", "abide1", "abide1_images")
    assert {name.split(":")[0] for name in list(copies.frame)[1:]} == {"ABIDE-I (abide1)", "ABIDE-I (abide1_images)"}
    assert layout("comparison", "abide1", atlases=["cc200"])[0].title.endswith(": cc200 atlas")
    sheets = {name: layout(name, "hcp_rest") for name in ("ablation", "window_size")}
    sheets["comparison"] = layout("comparison", "abide1", "hcp_task", "hcp_rest")
    found, table = filled("window_size", "hcp_rest")
    table.loc[table["row"] == "BolT, W = 200", ["n_folds", "n_scans"]] = [7, 70]
    sheets["a row lacks folds"] = as_in_paper(load_experiment("window_size"), found, table)
    parts = [f"# {name}\n\n" + "\n".join(map(markdown, of_name)) for name, of_name in sheets.items()]
    as_before("paper_layout.md", "\n".join(parts))
    drawn = latex(sheets["comparison"][0], "tab:x")
    unknown = [name.removesuffix(" †") for name in sheets["comparison"][0].frame[""] if name.endswith("†")]
    assert len(unknown) >= 4 and all(rf"{row} $\dagger$ &" in drawn for row in unknown)
    assert all(escape(note) in drawn for note in sheets["comparison"][0].notes)
    assert escape("✓ (G) ✗") == r"$\checkmark$ (G) $\times$"
    assert [layout(name, "abide1") for name in EXTRAS if load_experiment(name).trains] == [[]] * 5  # no such table


def test_the_paper_and_the_extras_share_nothing_and_leave_nothing():
    assert sorted(["abide_benchmark", *PAPER, *EXTRAS]) == known("experiment")
    run = Run(configured(dataset="hcp_task").model_dump(mode="json"))
    assert sorted(run.asked("paper")) == PAPER and sorted(run.asked("extras")) == EXTRAS
    rest = Run(configured(dataset="hcp_rest").model_dump(mode="json"))
    assert sorted(rest.asked("paper")) == [name for name in PAPER if name != "task_timing"]  # nothing happens at rest


def test_every_table_and_figure_is_in_the_list_of_the_documentation():
    text = Path("docs/paper.md").read_text()
    assert all(f"\n| Table {number}" in text for number in range(1, 6)) and all(f"`{name}`" in text for name in EXTRAS)
    assert all(re.search(rf"^\| Figures? (1, )?{n}[:,]", text, re.M) for n in range(2, 8))


def test_the_list_names_the_files_of_every_command():
    """Which the workflow makes: tests/end_to_end/test_paper.py."""
    found = listed("mine")
    assert sorted(found) == PAPER
    assert {name: files[0] for name, files in found.items()} == {
        **{name: f"{name}.md" for name in PAPER},
        "brain_maps": "brain_maps_mine_*.png",
        "task_timing": "task_timing_mine_*_a.png",
    }
    assert found["task_timing"][1] == "task_timing_mine_*_b.png" and found["complexity"][1] == "complexity.png"
    assert {*found["comparison"]} == {"comparison.md", "comparison_families.tsv"}
    assert not belongs("comparison.jpg", "comparison", found["comparison"], trained=True)
    assert not belongs("brain_maps_other_x.png", "brain_maps", found["brain_maps"], trained=False)


def test_formulas_stand_beside_exponents():
    rows = pd.DataFrame({"row": list(PUBLISHED["formulas"]), "operations": 1.0})
    table = with_formulas(rows, load_experiment("complexity"))
    stated = table[["row", "formula", "paper_exponent"]].astype(object)
    stated = stated.where(stated.notna(), None)
    assert {row: [formula, power] for row, formula, power in stated.to_numpy()} == PUBLISHED["formulas"]
    assert r"\textsuperscript{2}" in escape("O(NT²)") and r"$\beta$" in escape("β·m")


def test_autism_is_the_positive_class_and_red_in_both_files():
    assert load_dataset("abide1").coloured == load_dataset("abide1_images").coloured == ["autism", "control"]
    assert load_dataset("abide1").classes == ["control", "autism"]


def test_other_datasets_follow_the_papers():
    found = [entry for name in ("phantom", "abide1") for entry in filled("window_size", name)[0]]
    assert list(dict.fromkeys(entry.dataset for entry in in_papers_order(found))) == ["abide1", "phantom"]
