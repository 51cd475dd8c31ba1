"""Build a wheel with all that a clone has.

What is beside the package goes into it as `bolt/_project/` (`bolt.io.places`), and the compiled library beside
its source (`bolt.models.compiled.library`).
"""

import platform
import re
import runpy
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDERS = {"atlases": "atlases", "config": "config", "workflow": "workflow", "profiles": "workflow/profiles"}
"""Each folder's name in the wheel, and where the clone has it (there `profiles` is a link)."""
NOT_OURS = shutil.ignore_patterns("*.nii*", "*_order.txt", "*.sha256", "__pycache__", ".*")
"""Images and tables of labels that were downloaded into a clone."""
COMPILED = Path("bolt/models/compiled")


class BuildWithProject(build_py):
    """Build the package together with the project's folders; an editable installation uses the clone's."""

    def run(self) -> None:
        """Build into an empty folder, then copy what is beside the package and compile the library."""
        if self.editable_mode:
            super().run()
            return
        package = Path(self.build_lib) / "bolt"
        shutil.rmtree(package, ignore_errors=True)  # modules of an earlier build that have since been removed
        super().run()
        for name, source in FOLDERS.items():
            shutil.copytree(source, package / "_project" / name, ignore=NOT_OURS)
        shutil.copy("Snakefile", package / "_project")
        build_library(Path(self.build_lib) / COMPILED)


def build_library(folder: Path) -> None:
    """Compile the library into a folder, if there is a C++ compiler."""
    build = runpy.run_path(str(COMPILED / "build.py"))
    compiler = build["find_compiler"]()
    if compiler is None:
        print("no C++ compiler found: a wheel without the library, for any platform")
        return
    try:
        print(f"compiled {build['build'](compiler, folder)}")
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        print(f"the library does not compile: a wheel without it, for any platform. {reason}")


class WheelWithLibrary(bdist_wheel):
    """Make a wheel for this platform if the library was compiled; for any version of Python, which does not link it."""

    def run(self) -> None:
        """Build first, because the kind of wheel depends on what the build contains."""
        self.run_command("build")
        self.root_is_pure = self.library() is None
        self.distribution.has_ext_modules = lambda: not self.root_is_pure  # asked for the folder in the wheel
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, ABI and platform: with glibc, the oldest version that the library runs on."""
        python, abi, system = super().get_tag()
        library = self.library()
        if library is None:
            return python, abi, system
        if platform.libc_ver()[0] == "glibc":
            versions = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())]
            system = f"manylinux_2_{max(17, *versions)}_{platform.machine()}"
        return "py3", "none", system

    def library(self) -> Path | None:
        """Return the path of the compiled library, if there is one."""
        built = Path(self.get_finalized_command("build_py").build_lib) / COMPILED
        return next(built.glob("window_attention-*.so"), None)


setup(cmdclass={"build_py": BuildWithProject, "bdist_wheel": WheelWithLibrary})
