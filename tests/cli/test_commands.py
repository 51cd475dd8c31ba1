"""The table of commands: what `bolt --help` shows, and shell completion."""

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from bolt.cli import main as cli
from bolt.cli.main import COMMANDS, GROUPS, main, make_parser
from bolt.config import ROOT
from bolt.io.files import read_yaml
from bolt.io.places import snakemake_command
from bolt.jobs.outcome import repeat_command
from bolt.workflow.stage import STAGES
from tests.forks import run_module
from tests.snake import series_dataset, write_yaml


def shown(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_shows_commands_by_purpose_and_the_stages_apart(capsys):
    text = shown(capsys, "--help")
    by_group = {group: text.split(f"\n{group}:\n")[1].split("\n\n")[0] for group in GROUPS}
    names = {group: re.findall(r"^  (\S+) ", block, re.MULTILINE) for group, block in by_group.items()}
    for group in GROUPS:
        assert names[group] == [name for name, command in COMMANDS.items() if command["group"] == group]
    assert {"parcellate", "explain", "check"} <= set(names[GROUPS[0]]) and "stages" in names[GROUPS[1]]
    assert "faithfulness-fold" not in text  # a stage
    assert cli.main(["stages"]) == 0
    listed = re.findall(r"^  (\S+) ", capsys.readouterr().out, re.MULTILINE)
    assert listed == [stage.command for stage in STAGES.values()]


def test_a_mistyped_command_is_told_the_nearest(capsys):
    for words, said in ((["atlas"], "no command 'atlas' (did you mean 'atlases'?). Commands: "), (["xyz"], "'xyz'. C")):
        with pytest.raises(SystemExit):
            cli.main(words)
        printed = capsys.readouterr().err
        assert said in printed and "faithfulness-fold" not in printed


def test_every_command_has_a_help_of_its_own_and_a_function(capsys):
    for name in [*COMMANDS, *(stage.command for stage in STAGES.values())]:
        assert shown(capsys, name, "--help").startswith(f"usage: bolt {name} ")
    for name, command in COMMANDS.items():
        module, _, function = command["function"].partition(":")
        assert callable(getattr(import_module(module), function)), name


def test_a_reader_that_stops_reading_is_no_error():
    process = subprocess.Popen([sys.executable, "-m", "bolt", "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait() == 0 and process.stderr.read() == b""


def test_completion_costs_nothing_until_a_shell_asks(monkeypatch):
    asked = []
    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=asked.append))
    monkeypatch.delenv("_ARGCOMPLETE", raising=False)
    assert cli.main(["where"]) == 0 and not asked
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert cli.main(["where"]) == 0
    assert [parser.prog for parser in asked] == ["bolt"]
    monkeypatch.setitem(sys.modules, "argcomplete", None)  # without it, an ordinary answer
    assert cli.main(["where"]) == 0


def test_help_imports_nothing_heavy():
    code = "import sys; from bolt.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sorted({'numpy', 'pandas', 'torch', 'pydantic', 'yaml', 'argcomplete'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- commands in messages can be carried out as they are printed ----------------------------------------------------
COMMAND = re.compile(r"\bbolt ([a-z][a-z-]*)((?: (?:--?[a-z]|[A-Z]{3})[^;,)`'\"]*)?)")


@cache
def texts():
    """File and text of each string of the package but its docstrings, with … for what varies."""
    commands = ROOT / "bolt/cli/commands.toml"
    found = [(commands.name, commands.read_text())]
    for file in sorted((ROOT / "bolt").rglob("*.py")):
        nodes, name = list(ast.walk(ast.parse(file.read_text()))), str(file.relative_to(ROOT))
        skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        skipped |= {id(value) for node in nodes if isinstance(node, ast.JoinedStr) for value in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                found.append((name, "".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                found.append((name, node.value))
    return found


def test_commands_in_messages_exist_and_take_their_arguments():
    known, parser = {*COMMANDS, *(stage.command for stage in STAGES.values())}, make_parser()
    n_mentioned = 0
    for file, text in texts():
        for name, arguments in COMMAND.findall(text):
            assert name in known, f"{file}: {text}"
            n_mentioned += 1
            if arguments:
                parser.parse_args([name, *shlex.split(arguments)])
    assert n_mentioned > 20


def test_no_message_quotes_a_snakemake_that_works_in_one_folder_alone():
    """They name a target, or come from `snakemake_command`."""
    quoting = {file for file, text in texts() if re.search(r"\bsnakemake (-?-?[a-z]+|…)( |$|`)(?!imports)", text)}
    assert quoting <= {"bolt/io/places.py", "bolt/cli/main.py", "bolt/cli/new_study.py"}


def carried_out(command, folder):
    words = shlex.split(command)
    assert words[0] == "snakemake"
    done = run_module([*words, "-n"], folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def study(tmp_path, monkeypatch, capfd):
    """A folder of ready series, and one that `bolt run` has written into, seen from a third."""
    series_dataset(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    options = ["--label", "dx", "--model", "svm", "--atlas", "dosenbach160", "--folds", "3", "--name", "mine"]
    assert main(["init", "../series/scans.tsv", "--out", "../out", *options]) == 0
    return tmp_path / "out", capfd.readouterr().out


def test_what_is_printed_about_a_study_works_from_where_it_is_printed(study, capfd):
    """The printed commands work in the study's own folder, where `bolt run` works."""
    out, printed = study
    check, run = printed.partition("next: ")[2].split("\n      ")
    assert main(shlex.split(check)[1:]) == 0
    shown = capfd.readouterr().out.splitlines()[-1]
    command = shown.removeprefix("A run can start: ").partition("   (")[0]
    assert command == run.strip() == snakemake_command(Path("../out/mine.yaml"))
    assert "train_folds" in carried_out(command, Path.cwd())
    again = repeat_command(Path("results/mine/scans.tsv"), Path("../out/mine.yaml"))
    assert "index" in carried_out(again, "/")
    assert not list(Path.cwd().iterdir()) and {path.name for path in out.iterdir()} >= {"mine.yaml", "datasets"}


def test_a_stage_called_by_hand_finds_the_folder_of_the_run_that_keeps_its_configuration(study, monkeypatch):
    out = study[0]
    kept = read_yaml(out / "mine.yaml") | {"dataset": "datasets/mine.yaml"}
    (out / "results/mine").mkdir(parents=True)
    write_yaml(out / "results/mine/config.yaml", kept)
    assert main(["index", "--config", "../out/results/mine/config.yaml"]) == 0
    assert (out / "results/mine/scans.tsv").is_file()
