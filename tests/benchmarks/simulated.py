"""Run Snakemake on a virtual cluster set up by JSON; print how many jobs there were, and when the last one ended."""

import json
import sys

from snakemake.cli import main

from benchmarks import virtual

virtual.Clock.spent = staticmethod(lambda: 0.0)  # Snakemake's own time varies between runs
settings = json.loads(sys.argv[1])
cluster = virtual.Cluster(seconds=lambda job: 100.0, **settings["cluster"])
clock = virtual.install(cluster)
try:
    main(["--executor", "virtual", "--scheduler", "greedy", "--quiet", "all", *settings["arguments"]])
except SystemExit as end:
    log = virtual.Executor.log
    print(json.dumps({"code": end.code, "jobs": len(log), "end": max(entry.noticed for entry in log)}))
