"""Write the conda environments (`make lock`): conda brings Python and a compiler, pip the locked versions of all else.

Direct requirements of an environment are in `<name>.in` beside this file; what they need comes from requirements.txt.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILES = {
    "launch": ROOT / "environment.yml",
    "imaging": HERE / "imaging.yaml",
    "learning": HERE / "learning.yaml",
}
COMPILER = "  - cxx-compiler  # compiles the attention kernel; without it torch computes the same, more slowly\n"
TEXT = """{about}
# Made by `make lock` of {name}.in and requirements.txt: pip brings the versions that are tested together.
{title}channels:
  - conda-forge
  - nodefaults
dependencies:
  - python=3.11
{compiler}  - pip
  - pip:
{packages}"""


def packages(name: str) -> list[str]:
    """Return the locked requirements of an environment, with all that they need."""
    words = ["uv", "pip", "compile", "--quiet", "--universal", "--fork-strategy", "fewest", "--python-version", "3.11"]
    words += ["--no-annotate", "--no-header", "--constraints", "requirements.txt", "--constraints"]
    words += ["requirements-torch.txt", f"workflow/envs/{name}.in"]
    uv = Path(sys.executable).with_name("uv")
    return subprocess.run([uv, *words[1:]], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def environment(name: str) -> str:
    """Return the text of an environment's file."""
    about = (HERE / f"{name}.in").read_text().splitlines()[0]
    listed = "".join(f'      - "{one}"\n' if ";" in one else f"      - {one}\n" for one in packages(name))
    title, compiler = "name: bolt\n" * (name == "launch"), COMPILER * (name == "learning")
    return TEXT.format(about=about, name=name, title=title, compiler=compiler, packages=listed)


if __name__ == "__main__":
    for name, file in FILES.items():
        file.write_text(environment(name))
