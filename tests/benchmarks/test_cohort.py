"""Check the benchmark's virtual cluster: known jobs on a given number of slots end at a known virtual time."""

import json

import pytest

from bolt.config import ROOT
from tests.forks import run_module

SNAKEFILE = """
rule all:
    input: expand("b{i}", i=range(6))
rule a:
    output: "a{i}"
    group: "pair"
    shell: "false"
rule b:
    input: "a{i}"
    output: "b{i}"
    group: "pair"
    shell: "false"
"""
PROMPT = {"submit_seconds": 0.0, "poll": 1.0, "poll_step": 0.0}


def simulated(folder, arguments, **cluster):
    (folder / "Snakefile").write_text(SNAKEFILE)
    settings = json.dumps({"arguments": arguments, "cluster": PROMPT | cluster})
    done = run_module(["tests.benchmarks.simulated", settings], folder, {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("arguments", "cluster", "jobs", "end"),
    [
        # six pairs of 200 s, two in parallel
        pytest.param(["--jobs", "2"], {}, 6, 600, id="groups"),
        # without groups there are twice as many jobs
        pytest.param(["--jobs", "1", "--groups", "a=x", "b=y"], {}, 12, 1200, id="single"),
        # one thread submits them in sequence, 10 s each: the last starts after 60 s
        pytest.param(["--jobs", "6"], {"submitters": 1, "submit_seconds": 10.0}, 6, 260, id="submission"),
        # all end at 200 s, first noticed by the query at 240 s
        pytest.param(["--jobs", "6"], {"poll": 80.0}, 6, 240, id="query"),
    ],
)
def test_jobs_on_slots_end_at_a_known_time(tmp_path, arguments, cluster, jobs, end):
    assert simulated(tmp_path, arguments, **cluster) == {"code": 0, "jobs": jobs, "end": end}


@pytest.mark.slow
def test_a_killed_job_is_tried_again(tmp_path):
    result = simulated(tmp_path, ["--jobs", "6", "--retries", "20"], killed=0.5)
    assert result["code"] == 0 and result["jobs"] > 6
