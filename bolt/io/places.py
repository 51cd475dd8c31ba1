"""Where this copy of BolT is: its code, and the folders that come with it.

In a clone `config/`, `atlases/`, `workflow/` and the Snakefile are beside the package; a wheel has them inside it.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from bolt.io.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package: modules, C++ source, report templates."""

INSTALLED = PACKAGE / "_project"
"""What a wheel has in place of the clone (made by setup.py)."""

ROOT = PACKAGE.parent if (PACKAGE.parent / "Snakefile").is_file() else INSTALLED
"""The workflow's base directory: the folder that holds `config/`, `atlases/`, `workflow/` and the Snakefile."""

WRITTEN_BY_BOLT = "# You may edit this file: `bolt` then uses it as it is (checksum of what it wrote: "
"""Line of the files that `bolt init` and `bolt run` write."""

PLANNED_BY = "BOLT_PACKAGE"
"""Variable in which the workflow's jobs get the package of the process that planned them."""


def folder_for_downloads(shipped: Path) -> Path:
    """Return where to keep what is downloaded for a folder that comes with BolT.

    Parameters
    ----------
    shipped : Path

    Returns
    -------
    Path
        The folder itself; for one of an installed package, which may be read-only, its place in the user's cache.
    """
    if not shipped.is_relative_to(INSTALLED):
        return shipped
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "bolt" / shipped.relative_to(INSTALLED)


def import_path(work: Path) -> Path:
    """Return the folder from which jobs import this package and nothing else.

    Parameters
    ----------
    work : Path
        Folder of the run's intermediate files.

    Returns
    -------
    Path
        The clone; for an installed package the folder that `link_package` makes. Its site-packages would replace the
        packages of a conda environment.
    """
    return work.resolve() / "code" if ROOT == INSTALLED else ROOT


def link_package(work: Path) -> None:
    """Link an installed package from the folder that `import_path` names."""
    if ROOT != INSTALLED:
        return
    link = import_path(work) / "bolt"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not _same(link, PACKAGE):
        link.unlink(missing_ok=True)
        link.symlink_to(PACKAGE)


def use_writable_folders(work: Path) -> None:
    """Let this process and its children use a cache and a folder for temporary files that can be written.

    On compute nodes the home folder may be read-only or full, and Snakemake keeps its cache there.

    Parameters
    ----------
    work : Path
        Folder of the run's intermediate files, which then holds the cache.

    Raises
    ------
    ConfigError
        There is no folder for temporary files.
    """
    try:
        os.environ["TMPDIR"] = tempfile.gettempdir()  # the first of TMPDIR, /tmp and others that takes a file
    except OSError as error:
        raise ConfigError(f"no temporary files: {error.strerror}", hint="Set TMPDIR to a folder with space") from None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache) as probe:
            probe.write(bytes(4096))
    except OSError:
        os.environ["XDG_CACHE_HOME"] = str(work.absolute() / "cache")


def folder_of_run(config: Path) -> Path:
    """Return the folder in which the relative paths of a configuration begin.

    Parameters
    ----------
    config : Path

    Returns
    -------
    Path
        Of a file that `bolt` wrote: its own. Of the configuration that a run keeps among its results: that which holds
        the results. Else the working folder.
    """
    from bolt.io.files import parse_yaml  # `bolt --help` starts without yaml

    if not config.is_file():
        return Path.cwd()
    text = config.read_text(encoding="utf-8", errors="replace")
    if WRITTEN_BY_BOLT in text:
        return config.resolve().parent
    keys = parse_yaml(text, config)
    paths = keys.get("paths")
    results = paths.get("results", "results") if isinstance(paths, dict) else "results"
    kept = Path(str(results)) / Path(str(keys.get("dataset"))).stem / "config.yaml"
    for path in (config.absolute(), config.resolve()):  # the results may be a link to a folder elsewhere
        if not kept.is_absolute() and path.parts[-len(kept.parts) :] == kept.parts:
            return path.parents[len(kept.parts) - 1].resolve()
    return Path.cwd()


def snakemake_command(config: Path, *targets: str, folder: Path | None = None) -> str:
    """Return the command that runs the workflow, for messages.

    Parameters
    ----------
    config : Path
    *targets : str
    folder : Path, optional
        In which it works; without one, that of the configuration (`folder_of_run`).
    """
    words = ["snakemake", *targets, "--cores", "1" if targets else "8", "--configfile", str(config)]
    if not Path("Snakefile").is_file():
        words += ["--snakefile", str(ROOT / "Snakefile")]
    folder = folder or folder_of_run(config)
    if folder != Path.cwd():
        words += ["--directory", str(folder)]
    return shlex.join(words)


def refuse_other_planner() -> None:
    """Refuse a job of the workflow that another copy of BolT has planned.

    Raises
    ------
    ConfigError
        Names both copies.
    """
    planner = os.environ.get(PLANNED_BY)
    if planner and not _same(Path(planner), PACKAGE):
        what = f"the workflow was planned by another copy of BolT ({planner}) than this one"
        hint = "Start snakemake in a folder without a copy of its own. In a container, bind the other copy's folder"
        raise ConfigError(what, where=PACKAGE, hint=hint)


def refuse_other_snakefile(basedir: str | Path) -> None:
    """Refuse a Snakefile of another copy of BolT than the one that is imported.

    Parameters
    ----------
    basedir : path
        Folder of the Snakefile.

    Raises
    ------
    SystemExit
        In one line: what belongs together.
    """
    if not _same(Path(basedir), ROOT):
        raise SystemExit(
            f"bolt: {Path(basedir) / 'Snakefile'}: not the Snakefile of the BolT that snakemake imports ({PACKAGE}). "
            f"Use --snakefile {ROOT / 'Snakefile'}, or the snakemake that is installed with the other copy."
        )


def shipped_configuration(*, anywhere: bool) -> str:
    """Return the configuration for a command line that gives none: the phantom's, in the folder of the Snakefile.

    Parameters
    ----------
    anywhere : bool
        Whether it is used in other folders, too.

    Raises
    ------
    SystemExit
        Snakemake was started elsewhere, where nobody expects the phantom.
    """
    shipped = ROOT / "config" / "config.yaml"
    if not anywhere and not _same(Path.cwd(), ROOT):
        raise SystemExit(
            f"bolt: no configuration. Name one with --configfile ('bolt init DATA' writes it; {shipped} is the "
            "phantom's), or start 'bolt run DATA OUT group --label COLUMN'."
        )
    return str(shipped)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, by whatever names."""
    try:
        return one.samefile(other)
    except OSError:
        return False
