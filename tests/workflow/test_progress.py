"""What a run shows of itself: a line per stage, failures at once, and where the full log is."""

import io
import logging
import re
from pathlib import Path

import pytest

from bolt.io.errors import FINAL
from bolt.io.files import write_json
from bolt.workflow import progress as module
from bolt.workflow.progress import Progress, duration
from tests.jobs.test_run_crate import check_crate
from tests.snake import series_dataset, snakemake

GOLDEN = Path(__file__).with_name("golden")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Story:
    """A run that is told by Snakemake's log records."""

    def __init__(self, totals, seconds=None, stream=None):
        self.stream, self.now, self.totals = stream or io.StringIO(), 0.0, totals
        default, costs = logging.StreamHandler(self.stream), seconds or {}
        self.progress = Progress(default, lambda: self.totals, lambda rule: costs.get(rule, 0.0), lambda: self.now)
        self.progress.announce(Path("results/mine"), "on 2 cores", ["run.log"])

    def tell(self, event, text="", level=logging.INFO, at="job_scheduler", **facts):
        record = logging.LogRecord("snakemake", level, f"{at}.py", 1, text, (), None)
        vars(record).update({"event": event, **facts})
        self.progress.handle(record)

    def start(self, number, rule, name="", shellcmd="python", output=(), log=()):
        wildcards = {"scan": name} if name else {}
        about = {"rule_name": rule, "wildcards": wildcards, "shellcmd": shellcmd, "output": output, "log": log}
        self.tell("job_info", jobid=number, **about)

    def finish(self, number, text=""):
        self.tell("job_finished", text, job_id=number)

    def do(self, number, rule, name="", seconds=0, **about):
        self.start(number, rule, name, **about)
        self.now += seconds
        self.finish(number)

    def fail(self, number, rule, shellcmd="python > log", log=(), indent=False):
        self.tell("job_error", jobid=number, rule_name=rule, shellcmd=shellcmd, log=log, indent=indent)

    @property
    def lines(self):
        """What was written, without times of day and columns."""
        lines = [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in self.stream.getvalue().splitlines()]
        return [re.sub(r" +", " ", line).rstrip() for line in lines]


def test_a_run_is_told_as_it_goes(tmp_path, monkeypatch):
    """All that is shown in a file, line by line: `golden/progress.txt`."""
    monkeypatch.setattr(module, "TAIL", 2)
    log, slurm = tmp_path / "job.log", tmp_path / "slurm.log"
    good, bad = tmp_path / "good_status.json", tmp_path / "bad_status.json"
    story = Story({"template": 1, "index": 1}, {"template": 0.01, "train_fold": 100.0, "index": 1.0})
    about, given_up = story.progress, []
    about.retries, about.give_up = 1, given_up.append
    story.do(1, "template", seconds=14)  # a hundredth of the work, which took long: no time left is told from it
    story.do(2, "index", seconds=2)
    story.totals |= {"train_fold": 3, "parcellate": 132, "explain": 2, "folds": 1, "report": 1}
    story.tell("progress", done=1, total=132)  # the index adds the jobs of all scans
    for number in range(126):  # a line a minute
        story.do(10 + number, "parcellate", seconds=1)
    story.start(3, "train_fold")  # announced, since it is long
    for number in (3, 4, 5):
        story.now += 100
        story.finish(number)
        story.start(number + 1, "train_fold")
    # a scan that fails without a crash; the second time it failed in an earlier stage, which has shown it
    write_json({"state": "ok", "stage": "parcellate"}, good)
    for stage in ("parcellate", "functional"):
        write_json({"state": "failed", "stage": stage, "reason": f"{stage}: the file is cut off."}, bad)
        for status in (good, bad, tmp_path / "none_status.json"):
            story.do(200, "parcellate", f"sub-{status.name[:4]}", output=["series.npy", str(status)])
    story.do(201, "all", shellcmd=None)  # a target
    # a crash is tried again, with the end of its log each time
    log.write_text("first\nsecond\ntoken=abcdefgh12345678\n")
    for _ in range(2):
        story.start(300, "explain", "sub-01", log=[str(log)])
        story.fail(300, "explain", log=[str(log)])
    # what would fail again is given up; what the job has shown is not shown again, but on a cluster nobody sees it
    command = f"python -m bolt folds > {log} 2>&1 || (cat {log} >&2; exit 1)"
    log.write_text(f"{FINAL}\nKilled\n")
    story.start(301, "folds")
    story.fail(301, "folds", shellcmd=command, log=[str(log)])
    assert not given_up
    about.is_local, about.attempts[301] = False, 0
    log.write_text(f"bolt folds: a leak.\n{FINAL}\n")
    story.fail(301, "folds", shellcmd=command, log=[str(log)])
    assert given_up == [301]
    # joined jobs show the scheduler's reason once, and not what follows it
    reason = "slurmstepd-vm: error: StepId=15.0 exceeded memory limit (1352720384 > 1258291200), being killed"
    slurm.write_text("\n".join(["start", reason, reason, *["Shutting down"] * 40]))
    story.tell("group_error", level=logging.ERROR, groupid="g_0", aux_logs=[str(slurm)], job_error_info=[])
    story.start(302, "explain", "sub-02", log=["own.log"])
    story.fail(302, "explain", log=["own.log", str(slurm)], indent=True)
    for number, rule in ((400, "report"), (401, "all")):  # of whose start nothing is said, as with SLURM
        story.finish(number, f"Finished jobid: {number} (Rule: {rule})")
    about.failed += [f"parcellate sub-{number:02d}" for number in range(20)]
    about.conclude(["Fix the cause."], ["run.log"])
    assert "\n".join(story.lines).replace(str(tmp_path), "…") == (GOLDEN / "progress.txt").read_text().strip()
    assert not set("\r\033") & set(story.stream.getvalue())


def test_a_terminal_has_a_line_that_is_rewritten(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    story = Story({"parcellate": 2}, stream=Terminal())
    for number in (1, 2):
        story.do(number, "parcellate", seconds=1)
    story.progress.conclude([], [])
    written = story.stream.getvalue()
    assert all(len(part) < 60 for part in re.findall(r"\r\033\[K([^\r\n]*)(?=\r)", written))
    screen = [line.rsplit("\033[K", 1)[-1] for line in written.split("\n")]
    assert sum("parcellate" in line for line in screen) == 1 and "2 jobs done in 2 s" in screen[-2]


@pytest.mark.parametrize(
    ("text", "level", "at", "shown"),
    [
        ("Select jobs to execute...", logging.INFO, "job_scheduler", False),
        ("Building DAG of jobs...", logging.INFO, "workflow", False),
        ("Nothing to be done (all requested files are present and up to date).", logging.INFO, "workflow", True),
        ("Creating conda environment imaging.yaml...", logging.INFO, "conda", True),
        ("Conda environments: ignored", logging.INFO, "workflow", False),
        ("Your sbatch call failed", logging.WARNING, "slurm", True),
        ("WorkflowError: no space", logging.ERROR, "exceptions", True),
        ("RuleException:\nCalledProcessError in file x.smk", logging.ERROR, "exceptions", False),
    ],
)
def test_other_messages(text, level, at, shown):
    story = Story({})
    story.tell(None, text, level, at)
    assert (text in story.stream.getvalue()) == shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (5340, "89 min"), (5460, "1 h 31 min"), (187200, "2 d 4 h")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_run_shows_a_line_per_stage_and_keeps_snakemakes_messages_in_its_log(series_run):
    folder, _, shown = series_run
    lines = shown.splitlines()
    stages = [line.split()[1:5] for line in lines if re.match(r"\d\d:\d\d:\d\d  \w+ +\d+ of", line)]
    assert sorted(stages) == [[name, "1", "of", "1"] for name in ("cache", "exclusions", "index", "quality", "rois")]
    assert "Results: results/mine" in lines and not re.search(r"[\r\033]|jobid|wildcards", shown)
    log, again = re.findall(r"^Full log: (.*)$", shown, re.MULTILINE)
    kept = (folder / log).read_text()
    assert log == again and "rule cache:" in kept and "Finished jobid" in kept


def test_every_run_ends_with_a_crate(series_run):
    entities = check_crate(series_run[0] / "results/mine")
    stages = {entity["name"].split(":")[0] for entity in entities.values() if entity["@type"] == "CreateAction"}
    assert stages == {"index", "rois", "quality", "cache", "exclusions"}
    read = [entity["@id"] for entity in entities["#exclusions_provenance.json"]["object"]]
    assert read == ["config.yaml", "cache/dosenbach160/ready/exclusions.tsv"]


@pytest.mark.slow
def test_snakemakes_own_messages_are_shown_on_request(tmp_path):
    config = series_dataset(tmp_path)
    assert "checkpoint index:" in snakemake(tmp_path, "-p", "index", config=config).stdout
    quiet = snakemake(tmp_path, "--quiet", "all", "--forcerun", "index", "--", "index", config=config).stdout
    assert quiet.startswith("Using workflow specific profile") and len(quiet.splitlines()) == 1
