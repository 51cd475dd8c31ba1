"""The table of commands: what `bolt --help` shows, and shell completion."""

import re
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from bolt.cli import main as cli
from bolt.cli.main import COMMANDS, GROUPS
from bolt.workflow.stage import STAGES


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
