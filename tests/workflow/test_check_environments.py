"""The script that asks conda-forge, elsewhere, whether all environments can be made."""

import os
import subprocess

import pytest

from bolt.config import ROOT

CONDA = """#!/bin/sh
echo "$CONDA_SUBDIR $*" >> {calls}
exit {status}
"""


@pytest.mark.parametrize("status", [0, 1])
def test_every_file_is_solved(tmp_path, status):
    """One that cannot be made ends the check."""
    conda = tmp_path / "conda"
    conda.write_text(CONDA.format(calls=tmp_path / "calls", status=status))
    conda.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(ROOT / "workflow/envs/check.sh", env=path, capture_output=True, text=True, check=False)
    assert done.returncode == status
    calls = [line.split(" ") for line in (tmp_path / "calls").read_text().splitlines()]
    files = ["environment.yml", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "workflow/envs").glob("*.yaml"))]
    assert [call[-1] for call in calls] == files[: None if status == 0 else 1]
    assert all("--dry-run" in call and call[0] == "linux-64" for call in calls)
