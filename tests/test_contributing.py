"""The example in CONTRIBUTING.md works, and the tables of models and atlases are complete."""

import re
import subprocess

import yaml

import bolt
from bolt import config as configuration
from bolt.atlases.description import ATLASES
from bolt.cli.lists import END, START, model_row, model_table
from bolt.cli.main import main
from bolt.config import ROOT, Model
from bolt.io.files import read_table, read_yaml
from bolt.models import registry
from bolt.training.runner import Training, train_folds
from tests.training.test_runner import DATASET, write_toy


def test_the_example_model_is_trained(tmp_path, monkeypatch):
    """A step of it, as it stands in the page: code and settings, through the runner."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    settings = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    registry.known_models()  # all are imported before the copy is made
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))
    monkeypatch.setattr("bolt.training.runner.code_fingerprint", lambda *_: "")  # the model has no file
    exec(compile(code, "CONTRIBUTING.md", "exec"), {"__name__": "example"})
    model = Model(name=settings["model"], **settings)
    one_epoch = model.model_copy(update={"training": model.training.model_copy(update={"epochs": 1})})
    training = Training(1, 0, tmp_path / "run")
    assert train_folds(*write_toy(tmp_path), one_epoch, DATASET, [training], device="cpu") == [None]
    history = read_table(training.folder / "history.tsv")
    assert len(history) == 1 and history["train_loss"].notna().all()
    assert len(read_table(training.folder / "predictions.tsv")) == 12
    assert model_row(model).startswith(
        "| `mean_magnitude` | Mean magnitude | baseline | series | logistic regression on"
    )


def test_the_table_of_models_in_the_documentation_is_that_of_the_configurations():
    page = (ROOT / "docs/models.md").read_text()
    assert f"{START}\n{model_table()}{END}" in page, "run `bolt models --into docs/models.md`"


def test_the_table_of_models(tmp_path, capsys):
    assert main(["models"]) == 0
    printed, table = capsys.readouterr().out, model_table()
    assert max(map(len, printed.splitlines())) <= 80
    for name in configuration.known("model"):
        assert f"\n| `{name}` | " in table and re.search(rf"^{name}: ", printed, re.MULTILINE)
    assert re.search(r"`motion_only` \| Motion only \| baseline \| `mean_fd` \| ", table)
    assert re.search(r"`majority` .* labels alone", table)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    assert main(["models", "--into", str(page)]) == 0
    assert page.read_text() == f"before\n{START}\n{table}{END}\nafter\n"
    page.write_text("no markers\n")
    assert main(["models", "--into", str(page)]) == 2
    assert "the markers of the table are missing" in capsys.readouterr().err


def test_every_atlas_has_its_line_in_the_page_of_atlases():
    text = (ROOT / "docs/atlases.md").read_text()
    atlases = [path.parent.name for path in ATLASES.glob("*/atlas.yaml")]
    assert atlases and [name for name in atlases if f"| `{name}` |" not in text] == []


def test_every_command_of_the_readme_is_one_the_makefile_or_cli_knows():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    assert targets and [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
    paths = re.findall(r"(?:config|workflow|docs|atlases)/[\w/.-]+\.(?:yaml|md|png|smk)", text)
    assert len(paths) > 5
    for path in paths:
        if "my_study" not in path:
            assert (ROOT / path).is_file(), path


def test_a_tag_is_released_only_as_the_version_that_all_files_name(tmp_path):
    steps = read_yaml(ROOT / ".github/workflows/release.yml")["jobs"]["release"]["steps"]
    (check,) = (step["run"] for step in steps if step.get("name") == "The tag is the version")
    for name in ("bolt/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())

    def released(tag: str) -> bool:
        return subprocess.run(["bash", "-ec", check], cwd=tmp_path, env={"GITHUB_REF_NAME": tag}).returncode == 0

    assert released(f"v{bolt.__version__}") and not released("v99.0.0")
    for name in ("CITATION.cff", "CHANGELOG.md"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace(bolt.__version__, "98.0.0"))
        assert not released(f"v{bolt.__version__}")
        (tmp_path / name).write_text(text)
