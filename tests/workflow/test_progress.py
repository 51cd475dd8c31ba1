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


def test_no_time_is_told_from_next_to_nothing():
    story = Story({"template": 1, "train_fold": 10}, {"template": 1.0, "train_fold": 100.0})
    story.do(1, "template", seconds=14)  # a thousandth of the work, which took long
    assert story.lines[2:] == ["template 1 of 1 in 14 s run: 1 of 11 jobs"]


def test_a_stage_is_one_line_with_its_time_and_that_of_the_run():
    story = Story({"index": 1, "cache": 1, "train_fold": 4}, {"train_fold": 10.0, "cache": 5.0})
    assert story.lines == ["BolT: 6 jobs on 2 cores; results in results/mine", "Full log: run.log"]
    story.do(1, "index", seconds=2)
    assert story.lines[2:] == ["index 1 of 1 in 2 s run: 1 of 6 jobs, about 2 min left"]  # 2 s per second, 45 to go
    for number in range(4):
        story.do(10 + number, "train_fold", seconds=10)
    assert story.lines[3:] == ["train_fold 4 of 4 in 40 s run: 5 of 6 jobs, about 5 s left"]
    story.do(9, "all", shellcmd=None)  # a target
    story.progress.conclude(["The report: here"], ["run.log"])
    assert story.lines[4:] == ["5 jobs done in 42 s", "The report: here", "Full log: run.log"]


def test_a_long_stage_is_announced_and_followed_in_a_file():
    story = Story({"train_fold": 3}, {"train_fold": 100.0})
    story.start(1, "train_fold")
    assert story.lines[2:] == ["train_fold 0 of 3 started run: 0 of 3 jobs"]
    for number in (1, 2, 3):
        story.now = 100.0 * number
        story.finish(number)
        story.start(number + 1, "train_fold")
    assert story.lines[3:] == [
        "train_fold 1 of 3 about 3 min left run: 1 of 3 jobs, about 3 min left",
        "train_fold 2 of 3 about 2 min left run: 2 of 3 jobs, about 2 min left",
        "train_fold 3 of 3 in 5 min run: 3 of 3 jobs",
    ]
    assert "\r" not in story.stream.getvalue() and "\033" not in story.stream.getvalue()


def test_many_short_jobs_are_a_line_a_minute():
    story = Story({"parcellate": 1000})
    for number in range(1000):
        story.do(number, "parcellate", seconds=1)
    assert len(story.lines) == 2 + 1000 // 60 + 1


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


def test_the_index_adds_the_jobs_of_all_scans():
    story = Story({"index": 1})
    story.do(1, "index")
    story.totals = {"index": 1, "parcellate": 2}
    story.tell("progress", done=1, total=3)
    for number in (2, 3):
        story.do(number, "parcellate")
    assert [line.split(" in ")[0] for line in story.lines[2:]] == ["index 1 of 1", "parcellate 2 of 2"]


def test_a_failed_job_is_shown_at_once_with_the_end_of_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TAIL", 2)
    log = tmp_path / "job.log"
    log.write_text("first\nsecond\ntoken=abcdefgh12345678\n")
    story = Story({"train_fold": 1})
    story.progress.retries = 1
    for _ in range(2):
        story.start(1, "train_fold", "sub-01", log=[str(log)])
        story.fail(1, "train_fold", log=[str(log)])
    shown = [f" its log: {log}", " | second", " | token=***"]
    failed = "train_fold sub-01: the job failed"
    assert story.lines[2:] == [f"{failed}; it is tried again", *shown, failed, *shown]
    story.progress.conclude(["Fix the cause."], ["run.log"])
    assert story.lines[-4:] == [
        "0 jobs done in 0 s",
        " failed: train_fold sub-01",
        "Fix the cause.",
        "Full log: run.log",
    ]


def test_a_job_that_would_fail_again_is_given_up(tmp_path):
    log, given_up = tmp_path / "job.log", []
    story = Story({"folds": 1})
    story.progress.retries, story.progress.give_up = 1, given_up.append
    for text, expected in ((f"{FINAL}\nKilled\n", []), (f"bolt folds: a leak.\n{FINAL}\n", [1])):
        log.write_text(text)
        story.start(1, "folds", log=[str(log)])
        story.fail(1, "folds", log=[str(log)])
        assert given_up == expected
        story.progress.attempts.clear()
    assert story.lines.count("folds: the job failed; it is tried again") == 1
    assert story.lines.count("folds: the job failed") == 1


def test_a_log_that_the_job_has_shown_is_not_shown_again(tmp_path):
    log = tmp_path / "job.log"
    log.write_text("the reason\n")
    command = f"python -m bolt folds > {log} 2>&1 || (cat {log} >&2; exit 1)"
    story = Story({"folds": 1})
    story.start(1, "folds")
    story.fail(1, "folds", shellcmd=command, log=[str(log)])
    assert "the reason" not in story.stream.getvalue() and str(log) in story.stream.getvalue()
    story.progress.is_local = False  # on a cluster, nobody sees what a job writes
    story.fail(1, "folds", shellcmd=command, log=[str(log)])
    assert "  | the reason" in story.stream.getvalue()


def test_jobs_of_whose_start_nothing_is_said_are_counted():
    """As with SLURM, whose executor announces no rule."""
    story = Story({"train_folds": 2})
    story.now = 30
    for number, rule in ((12, "train_folds"), (13, "train_folds"), (0, "all")):
        story.finish(number, f"Finished jobid: {number} (Rule: {rule})")
    assert story.lines[-1] == "train_folds 2 of 2 in 30 s run: 2 of 2 jobs"


def test_joined_jobs_show_the_schedulers_reason_once_and_not_what_follows_it(tmp_path):
    log = tmp_path / "slurm.log"
    reason = "slurmstepd-vm: error: StepId=15.0 exceeded memory limit (1352720384 > 1258291200), being killed"
    log.write_text("\n".join(["start", reason, reason, *["Shutting down"] * 40]))
    story = Story({"parcellate": 2})
    story.tell("group_error", level=logging.ERROR, groupid="parcellations_0", aux_logs=[str(log)], job_error_info=[])
    for number in (1, 2):
        story.start(number, "parcellate", f"sub-0{number}", log=["own.log"])
        story.fail(number, "parcellate", log=["own.log", str(log)], indent=True)
    written = story.stream.getvalue()
    assert written.count("exceeded memory limit") == 1 and "Shutting down" not in written
    assert "parcellate sub-02: the job failed" in story.lines


def test_a_scan_that_fails_without_a_crash_is_shown(tmp_path):
    good, bad = tmp_path / "good_status.json", tmp_path / "bad_status.json"
    write_json({"state": "ok", "stage": "parcellate"}, good)
    write_json({"state": "failed", "stage": "parcellate", "reason": "bold.nii.gz: the file is cut off."}, bad)
    story = Story({"parcellate": 3})
    for number, status in enumerate((good, bad, tmp_path / "missing_status.json")):
        story.do(number, "parcellate", f"sub-0{number}", output=["series.npy", str(status)])
    assert story.lines[2:4] == ["parcellate sub-01: failed: bold.nii.gz: the file is cut off.", f" its status: {bad}"]
    assert story.progress.failed == ["parcellate sub-01"]
    written = len(story.lines)
    write_json({"state": "failed", "stage": "functional", "reason": "the file is cut off."}, bad)
    story.do(9, "parcellate", "sub-01", output=[str(bad)])  # it was shown when it failed
    assert not any("cut off" in line for line in story.lines[written:])


def test_many_failures_are_counted_at_the_end(monkeypatch):
    story = Story({})
    story.progress.failed = [f"parcellate sub-{number:02d}" for number in range(23)]
    story.progress.conclude([], [])
    assert story.lines[-2:] == [" failed: parcellate sub-19", " failed: 3 more"]


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
    assert stages == [[name, "1", "of", "1"] for name in ("index", "quality", "cache", "exclusions")]
    assert "Results: results/mine" in lines and not re.search(r"[\r\033]|jobid|wildcards", shown)
    log, again = re.findall(r"^Full log: (.*)$", shown, re.MULTILINE)
    kept = (folder / log).read_text()
    assert log == again and "rule cache:" in kept and "Finished jobid" in kept


def test_every_run_ends_with_a_crate(series_run):
    entities = check_crate(series_run[0] / "results/mine")
    stages = {entity["name"].split(":")[0] for entity in entities.values() if entity["@type"] == "CreateAction"}
    assert stages == {"index", "quality", "cache", "exclusions"}
    read = [entity["@id"] for entity in entities["#exclusions_provenance.json"]["object"]]
    assert read == ["config.yaml", "cache/dosenbach160/ready/exclusions.tsv"]


@pytest.mark.slow
def test_snakemakes_own_messages_are_shown_on_request(tmp_path):
    config = series_dataset(tmp_path)
    assert "checkpoint index:" in snakemake(tmp_path, "-p", "index", config=config).stdout
    quiet = snakemake(tmp_path, "--quiet", "all", "--forcerun", "index", "--", "index", config=config).stdout
    assert quiet.startswith("Using workflow specific profile") and len(quiet.splitlines()) == 1
