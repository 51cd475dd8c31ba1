"""The table of commands: those for researchers, tables and audits, and the stages of the workflow.

Importing it is cheap; the module that does a command's work is imported when the command runs.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bolt import __version__
from bolt.workflow.stages import STAGES

Options = argparse._ArgumentGroup
"""A parser's options under one heading of its help."""

RUN_EXAMPLES = """\
Run the whole workflow on a folder of data, as a BIDS App.

  bolt run my_study out group --label diagnosis --atlas schaefer400 --fetch -n    # raw BIDS: show what would be done
  bolt run derivatives/fmriprep out group --label diagnosis --denoise 24p         # fMRIPrep output
  bolt run scans.tsv out group --label diagnosis --atlas cc200                    # a table of ROI series

'participant' makes the ROI series and quality pages of some or all participants, and needs no labels; 'group' does what
is left, trains, and ends in a report. What was made before is not made again. The configuration is written into
OUTPUT_DIR; the BIDS validator is not run."""

PURPOSES = "commands"
TOOLS = "tables and audits"
GROUPS = (PURPOSES, TOOLS)
"""Headings of `bolt --help`, in its order."""
MODEL = "folder of `bolt pack`, of save() in Python, of a run, or of one of its folds"
CONFIG_HELP = "configuration of the run [config/config.yaml, or the shipped one]"


class Command(NamedTuple):
    """One command that is called by name.

    Attributes
    ----------
    group : str
        The heading of `bolt --help` under which it is listed: one of `GROUPS`.
    help : str
        What it does, in one line.
    function : str
        ``module:name`` of the function that does the work. It takes the options, and may return the exit status.
    options : callable, optional
        Adds the command's options to its parser.
    threads : bool
        Whether it computes in threads.
    """

    group: str
    help: str
    function: str
    options: Callable[[argparse.ArgumentParser], None] | None = None
    threads: bool = False


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Shows what a run of the workflow would find and take, and what is missing, with the remedies. Nothing is "
        "downloaded or computed. Exits with status 0 if a run could start, else 2."
    )
    parser.add_argument("--config", type=Path, help=CONFIG_HELP)


def _check_folds_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exits with status 2 and one line where a subject, a family or a recording is on two sides of a split."
    )
    parser.add_argument(
        "table", type=Path, help="columns scan_id, fold, role (.tsv or .csv); and subject, group unless --scans"
    )
    parser.add_argument("--scans", type=Path, help="table of scans: scan_id, subject, group, bold")
    parser.add_argument("--cache", type=Path, nargs="+", default=[], help="caches whose series are compared by content")
    parser.add_argument("--files", action="store_true", help="compare the scans' files (column bold) by content")
    parser.add_argument("--sites", action="store_true", help="no site (column site) may be on two sides of a split")


def _models_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "One row per file in config/models: its name is what 'models' of a configuration takes."
    parser.add_argument("--into", type=Path, help="file that holds the table between markers: docs/models.md")


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s BIDS_DIR OUTPUT_DIR {participant,group} [options]"
    parser.description = RUN_EXAMPLES
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "bids_dir", type=Path, help="BIDS dataset, fMRIPrep output, or a table of ROI series (.tsv, .csv)"
    )
    parser.add_argument("output_dir", type=Path, help="new folder, or that of an earlier run")
    parser.add_argument("level", choices=["participant", "group"], help="ROI series of participants, or everything")
    parser.add_argument("-n", "--dry-run", action="store_true", help="only say what would be done")
    scans = parser.add_argument_group("which scans")
    scans.add_argument("--participant-label", nargs="+", metavar="LABEL", help="with or without 'sub-' [all]")
    scans.add_argument("--bids-filter-file", type=Path, metavar="JSON", help="entities of 'bold' and 't1w'")
    _study_options(parser, scans)
    how = parser.add_argument_group("how it runs")
    how.add_argument("--name", help="of the dataset, in the paths of results [that of the folder]")
    how.add_argument("--n-cpus", type=int, metavar="N", help="cores to use [all]")
    how.add_argument("--mem-mb", type=int, metavar="MB", help="memory to use [not limited]")
    how.add_argument("-w", "--work-dir", type=Path, metavar="DIR", help="intermediate files [OUTPUT_DIR/work]")
    how.add_argument("--fetch", action="store_true", help="first download missing templates and atlases")
    how.add_argument("--profile", help="of Snakemake: slurm, or a folder [default]")
    how.add_argument("--skip-bids-validation", action="store_true", help="accepted; the validator is never run")


def _study_options(parser: argparse.ArgumentParser, scans: Options | None = None) -> None:
    """Add what describes a study: its label, columns, scans, atlases and models."""
    label = parser.add_argument_group("what is predicted")
    label.add_argument(
        "--label", metavar="COLUMN", help="column of participants.tsv, or of the table of series, to predict"
    )
    label.add_argument("--classes", nargs="+", help="values of the label to use, the positive class last [all]")
    label.add_argument("--positive", metavar="CLASS", help="of two classes, that of recall and precision [no controls]")
    for name in ("site", "age", "sex"):
        label.add_argument(f"--{name}", metavar="COLUMN", help="column of participants.tsv [found by its name]")
    label.add_argument("--group-column", metavar="COLUMN", help="families, which are never split [the subject]")
    scans = scans or parser.add_argument_group("which scans")
    for name in ("task", "session", "run"):
        scans.add_argument(f"--{name}-id", nargs="+", metavar=name.upper(), help="[all]")
    series = parser.add_argument_group("ROI series")
    series.add_argument(
        "--atlas",
        nargs="+",
        help="names (bolt atlases), folders or images [schaefer400 aal116]; of ready series: theirs",
    )
    series.add_argument("--space", help="template space of the images [MNI152NLin6Asym]")
    series.add_argument("--denoise", help="strategy in config/denoise, or a file [none]")
    models = parser.add_argument_group("models")
    models.add_argument("--model", nargs="+", help="names (bolt models) or files [bolt; below 100 scans bolt_small]")
    models.add_argument("--folds", type=int, help="outer folds [10, or fewer with few participants]")
    models.add_argument("--seed", type=int, nargs="+", help="of training [0]")
    models.add_argument("--device", choices=["auto", "cpu", "cuda"], help="for training [auto: a GPU if there is one]")
    more = parser.add_argument_group("everything else")
    more.add_argument(
        "--set",
        nargs="+",
        metavar="KEY=VALUE",
        help="any key of config/config.yaml or of a dataset's file: quality.max_mean_fd=0.5 tr_conflict=sidecar",
    )


def _init_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="BIDS dataset, fMRIPrep output, or a table of ROI series (.tsv, .csv)")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the two files [this one]")
    parser.add_argument("--name", help="of the dataset [that of the folder]")
    _study_options(parser)


def _pack_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="results/<dataset>/runs/<atlas>/<variant>/<model>")
    parser.add_argument("--out", type=Path, required=True, help="new folder")
    parser.add_argument("--licence", help="of the weights, as model hubs name it: cc-by-4.0, apache-2.0, …")


def _predict_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "All models of a pack or a run predict together. The table has the probabilities, also calibrated, how far the "
        "models agree, and in what each scan differs from the training cohort."
    )
    parser.add_argument("model", type=Path, help=MODEL)
    parser.add_argument(
        "source",
        type=Path,
        nargs="+",
        help="files of ROI series; a table with 'subject' and 'file'; a folder with fMRIPrep output or raw BIDS data; "
        "or results/<dataset> of an earlier run",
    )
    parser.add_argument("--out", type=Path, required=True, help="table of predictions (.tsv)")
    parser.add_argument("--label", metavar="COLUMN", help="true labels, in the table or participants.tsv: adds metrics")
    parser.add_argument("--explain", type=Path, metavar="DIR", help="also explain each scan, in a folder of its own")
    parser.add_argument("--tr", type=float, help="repetition time in seconds, where no file states it")
    parser.add_argument("--any-tr", action="store_true", help="predict scans of any repetition time")
    parser.add_argument("--atlas", help="folder or image of the model's atlas, if it does not come with BolT")
    parser.add_argument(
        "-w", "--work-dir", type=Path, metavar="DIR", help="of images: where series are made [<out>_work]"
    )
    parser.add_argument("--n-cpus", type=int, metavar="N", help="of images: cores to use [all]")
    parser.add_argument("--fetch", action="store_true", help="of images: first download missing templates and atlases")


def _parcellate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", help="4D NIfTI in a reference space, or .dtseries.nii")
    parser.add_argument(
        "--atlas", nargs="+", required=True, help="names, folders or label images (.dlabel.nii for .dtseries.nii)"
    )
    parser.add_argument(
        "--out", required=True, help="series.npy (time × ROIs); for several atlases a folder, or a name with {atlas}"
    )
    parser.add_argument("--mask", help="image on the same grid [all voxels of the ROIs]")
    parser.add_argument("--confounds", help="table of confounds; without --denoise all its columns are regressed out")
    parser.add_argument("--denoise", help="which of them to use: a file in config/denoise, or the path of one")
    parser.add_argument("--space", help="reference space of the image, where its name declares none")
    parser.add_argument("--tr", type=float, help="repetition time in seconds [the header's]")
    parser.add_argument("--coverage", type=float, help="smallest share of an ROI's voxels; below it the ROI is NaN")
    parser.add_argument("--no-standardize", dest="standardize", action="store_false", help="do not z-score the series")
    parser.add_argument("--fetch", action="store_true", help="download a missing atlas; needs the network")
    parser.add_argument("--config", type=Path, help="configuration whose paths and 'parcellate' are used [none]")


def _explain_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes a page with the importance of each volume, the contribution of each ROI and their map, averaged over "
        "the models: of a run, those that were not trained on the scan."
    )
    parser.add_argument("model", type=Path, help=MODEL)
    parser.add_argument("scan", type=Path, help="its ROI series, time × ROIs: .npy, .csv, .tsv, .txt, .1D or .mat")
    parser.add_argument("--out", type=Path, required=True, help="folder for the page, tables, pictures and the map")
    parser.add_argument("--class", dest="class_name", help="class to explain [the predicted one]")
    parser.add_argument("--tr", type=float, help="seconds [RepetitionTime of the JSON file beside the series]")
    parser.add_argument("--events", type=Path, help="BIDS table of the scan's events, drawn beside importance")
    parser.add_argument("--hrf-shift", type=float, default=0.0, help="seconds by which events are drawn later [0]")
    parser.add_argument("--tokens", type=int, default=5, help="number of landmarks [5]")
    parser.add_argument("--atlas", help="name, folder or label image [the model's]")
    parser.add_argument("--labels", type=Path, help="table of the ROIs (value, name, network, hemisphere)")
    parser.add_argument(
        "--no-standardize", dest="standardize", action="store_false", help="series are z-scored already"
    )


def _describe_atlas_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="table of labels (*_dseg.tsv), or series whose columns have names")
    parser.add_argument("--out", type=Path, required=True, help="new folder, named as the atlas")


def _atlases_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="configuration whose 'paths' are searched for images")


COMMANDS = {
    "run": Command(
        PURPOSES, "Run the whole workflow on a folder of data, as a BIDS App.", "bolt.cli.run_app:run_app", _run_options
    ),
    "check": Command(
        PURPOSES,
        "Show whether a run could start: data, atlases, disk, time, and what is missing.",
        "bolt.workflow.readiness:check",
        _check_options,
    ),
    "parcellate": Command(
        PURPOSES,
        "Average a preprocessed image over the ROIs of an atlas.",
        "bolt.cli.parcellate_image:parcellate_image",
        _parcellate_options,
        threads=True,
    ),
    "predict": Command(
        PURPOSES,
        "Predict new scans with trained models, and say how far they resemble the training cohort.",
        "bolt.cli.predict:predict",
        _predict_options,
        threads=True,
    ),
    "explain": Command(
        PURPOSES,
        "Show which volumes and regions of a scan drive the prediction of trained models.",
        "bolt.share.one_scan:explain_given_scan",
        _explain_options,
        threads=True,
    ),
    "init": Command(TOOLS, "Write the configuration for a folder of data.", "bolt.cli.init:init", _init_options),
    "pack": Command(
        TOOLS, "Pack the models of a run, with a model card, for others.", "bolt.share.models:pack", _pack_options
    ),
    "check-folds": Command(
        TOOLS, "Audit any table of folds for leaks.", "bolt.folds.check:check_folds", _check_folds_options
    ),
    "models": Command(
        TOOLS, "List the models: what each is and learns from.", "bolt.cli.model_table:show_models", _models_options
    ),
    "atlases": Command(
        TOOLS,
        "List the atlases: ROIs, spaces, and where each image is or how to get it.",
        "bolt.cli.atlas_table:show_atlases",
        _atlases_options,
    ),
    "describe-atlas": Command(
        TOOLS,
        "Describe an atlas by the ROI names in a file, for ready series.",
        "bolt.cli.atlas_table:describe_atlas_of",
        _describe_atlas_options,
    ),
    "stages": Command(
        TOOLS,
        "List the stages of the workflow: one command each, called by its rules.",
        "bolt.cli.command_table:show_stages",
    ),
    "where": Command(
        TOOLS, "Print the folder that holds the Snakefile, config/ and atlases/.", "bolt.cli.command_table:show_root"
    ),
}
"""Every command but the stages, by name, in the order of `bolt --help`."""


def show_stages(options: argparse.Namespace) -> None:
    """Print every stage of the workflow in the order of the data, under the name of its module."""
    headings = {stage.command: stage.work.__module__.rpartition(".")[2] for stage in STAGES.values()}
    for heading in dict.fromkeys(headings.values()):
        print(f"{heading}:")
        print(*_lines({s.command: s.help for s in STAGES.values() if headings[s.command] == heading}), sep="\n")


def show_root(options: argparse.Namespace) -> None:
    """Print the folder that holds the Snakefile."""
    from bolt.io.places import ROOT

    print(ROOT)


def overview() -> str:
    """Return the lists of commands that `bolt --help` shows."""
    lines = []
    for group in GROUPS:
        listed = {name: command.help for name, command in COMMANDS.items() if command.group == group}
        lines += [f"{group}:", *_lines(listed), ""]
    lines += [
        "'bolt COMMAND --help' explains a command.",
        "'snakemake --snakefile $(bolt where)/Snakefile --cores 8 --configfile FILE' runs the workflow.",
    ]
    return "\n".join(lines)


def _lines(texts: dict[str, str]) -> Iterator[str]:
    """Yield names with their texts, which are wrapped and aligned."""
    for name, text in texts.items():
        yield textwrap.fill(text, 100, initial_indent=f"  {name:18} ", subsequent_indent=" " * 21)
