"""Build: what a clone has beside the package goes into a wheel as `bolt/_project/` (`bolt.io.places`)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = {"atlases": "atlases", "config": "config", "workflow": "workflow", "profiles": "workflow/profiles"}
"""Each folder's name in the wheel, and where the clone has it (there `profiles` is a link)."""
NOT_OURS = shutil.ignore_patterns("*.nii*", "*_order.txt", "*.sha256", "__pycache__", ".*")
"""Images and tables of labels that were downloaded into a clone."""


class BuildWithProject(build_py):
    """Build the package together with the project's folders; an editable installation uses the clone's."""

    def run(self) -> None:
        """Build into an empty folder, then copy what is beside the package."""
        if self.editable_mode:
            super().run()
            return
        package = Path(self.build_lib) / "bolt"
        shutil.rmtree(package, ignore_errors=True)  # modules of an earlier build that have since been removed
        super().run()
        for name, source in FOLDERS.items():
            shutil.copytree(source, package / "_project" / name, ignore=NOT_OURS)
        shutil.copy("Snakefile", package / "_project")


setup(cmdclass={"build_py": BuildWithProject})
