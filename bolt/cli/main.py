"""The command line: `bolt <command>` or `python -m bolt <command>`, one command a stage.

Every command takes the run's configuration with ``--config``; a stage that works on one scan or one fold
takes its name as well. The workflow's rules call these same commands.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from bolt import __version__
from bolt.io.credentials import Masked, show_exception, without_credentials
from bolt.io.errors import BoltError
from bolt.io.places import refuse_other_planner


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status. A `BoltError` is one line, anything else a traceback."""
    options = _parser().parse_args(arguments)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Masked("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    sys.excepthook = show_exception
    _set_threads(options.threads)
    from bolt.cli import stages  # after the thread variables are set: numeric libraries read them on import
    from bolt.workflow.lock import wait_for_job

    wait_for_job()
    try:
        refuse_other_planner()
        stages.run(options)
    except BoltError as error:
        print(f"bolt {options.command}: {without_credentials(str(error))}", file=sys.stderr)
        return 2
    return 0


def _set_threads(threads: int) -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(threads)
    os.environ.setdefault("NIPYPE_NO_ET", "1")  # nipype would ask a server for its newest version
    os.environ.setdefault("MPLBACKEND", "agg")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bolt", description="From raw 4D fMRI to the moments and regions that decided."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, text: str, *needs: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--config", type=Path, help="configuration of the run [config/config.yaml]")
        one.add_argument("--threads", type=int, default=1)
        for need in needs:
            one.add_argument(f"--{need}", required=True, type=int if need in ("seed", "fold", "inner") else str)
        return one

    def one_of_many(name: str, text: str, *needs: str) -> argparse.ArgumentParser:
        one = command(name, text, *needs)
        one.add_argument("--attempt", type=int, default=0, help="which try this is; a crash in the last is recorded")
        one.add_argument(
            "--limits", type=int, nargs=2, metavar=("MB", "MINUTES"), help="what a cluster was asked for; the last try"
        )
        return one

    simulate = command("simulate", "Write the phantom: a raw BIDS dataset with a known answer.")
    simulate.add_argument("--dataset", help="dataset whose 'simulate' keys say how; default: the configuration's")
    simulate.add_argument("--out", type=Path, help="folder to make; default: the dataset's 'path'")
    command("check", "Check configuration, datasets, atlases and models by name, before any work.")
    index = command("index", "List the scans of the dataset: scans.tsv.")
    index.add_argument("--minimum-volumes", type=int, default=2, help="exclude shorter scans")
    download = one_of_many("download", "Fetch a scan of the dataset, or its table of subjects; needs the network.")
    download.add_argument("--scan", help="default: the table of subjects")
    command("resources", "Fetch atlas images and templates that are found nowhere yet; needs the network.")
    command("template", "Put the template of the output space where preprocessing finds it.")
    one_of_many("anatomical", "Preprocess a subject's T1w image.", "folder")
    one_of_many("functional", "Preprocess a scan's BOLD image.", "scan")
    _add_parcellate(one_of_many("parcellate", "Average a scan, or an image by hand, over the ROIs of atlases."))
    command("quality", "Gather the quality of all scans, and leave out those beyond the cut-offs.")
    command("quality-pages", "Write the pages that show the quality of every subject, and of all.")
    command("cache", "Pack the z-scored series of all scans into one array.", "atlas")
    command("folds", "Split subjects into nested folds, and audit the split for leaks.")
    command("inner-folds", "Split every fold's training side once more, and audit the split for leaks.")
    foreign = commands.add_parser("check-folds", help="Audit any table of folds, own or foreign, for leaks.")
    foreign.description = (
        "Ends with status 2 and a line that says which, where a subject, a family or a recording is on two sides."
    )
    foreign.add_argument(
        "table", type=Path, help="columns scan_id, fold, role (.tsv or .csv); and subject, group unless --scans"
    )
    foreign.add_argument("--scans", type=Path, help="table of scans: scan_id, subject, group, bold")
    foreign.add_argument(
        "--cache", type=Path, nargs="+", default=[], help="caches whose series are compared by content"
    )
    foreign.add_argument("--files", action="store_true", help="compare the scans' files (column bold) by content")
    foreign.add_argument("--threads", type=int, default=1)
    fold = ("atlas", "model", "seed", "fold")
    train = one_of_many("train", "Train a model on one fold, or on several side by side, and predict.", *fold[:3])
    train.add_argument("--fold", required=True, type=int, nargs="+")
    for one in (
        train,
        _add_explain(one_of_many("explain", "Importance weights of every scan for one fold's model, or of one scan.")),
        command("evaluate", "Metrics per fold and over folds.", *fold[:3]),
        one_of_many("train-inner", "Train on one fold's training side without one of its parts.", *fold, "inner"),
        one_of_many("explain-inner", "Importance weights of a fold's training side, by models that saw none.", *fold),
        command("landmarks", "Regressions on the most important volumes, and on random ones.", *fold[:3]),
        command("regions", "ROI weights and brain maps.", *fold[:3]),
        one_of_many("train-permuted", "Train a model on permuted labels, to check the explanation by it.", *fold[:3]),
        command("sanity", "Check that importance goes when what the model has learned goes.", *fold[:3]),
        one_of_many("faithfulness-fold", "Curves of deletion and insertion of one fold's test scans.", *fold),
        command("faithfulness", "Whether removing important volumes changes predictions more than others.", *fold[:3]),
        command("stability", "Agreement of maps and of importance over folds and seeds.", *fold[:3]),
        command("tasks", "Importance over the course of tasks, beside their events.", *fold[:3]),
    ):
        one.add_argument("--variant", help="which cache was learned from; default: <space>-<denoise>")
    command("complexity", "Operations, time and memory of an experiment's models against scan length.", "name", "atlas")
    command("spectra", "Power spectra of the ROI series of all scans.", "name", "atlas")
    command("experiment", "Statistics and tables of an experiment over all datasets that have begun.", "name")
    search = command(
        "search", "Search hyper-parameters by validation scans; goes on where it was stopped.", "atlas", "model"
    )
    search.add_argument("--scheme", choices=["per-fold", "paper"], default="per-fold", help="[per-fold]")
    search.add_argument("--fold", type=int, help="search on this fold alone; default: all of the scheme, and choose")
    command("oracle-cache", "Pack the phantom's true series, for the demo's oracle.", "atlas")
    command("truth", "Compare the demo's results with the phantom's truth.")
    command("explanation", "Draw what the models looked at, and write the page that tells it.")
    command("report", "Write the HTML report.")
    command("ledger", "Sum what the jobs of all datasets cost: time, memory, energy. Every run ends with it.")
    models = commands.add_parser("models", help="Print the table of models, in Markdown.")
    models.description = "One row a file in config/models: its name is what 'models' of a configuration takes."
    models.add_argument("--into", type=Path, help="file that holds the table between markers: README.md")
    models.add_argument("--threads", type=int, default=1)
    atlases = commands.add_parser("atlases", help="List the atlases: their ROIs, spaces, and where each image is.")
    atlases.add_argument("--config", type=Path, help="configuration whose 'paths' are searched for images")
    atlases.add_argument("--threads", type=int, default=1)
    where = commands.add_parser("where", help="Print the folder that holds the Snakefile, config/ and atlases/.")
    where.add_argument("--threads", type=int, default=1)
    return parser


def _add_explain(one: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Either a fold of the configured dataset (as the workflow asks), or one scan by hand."""
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--fold", type=int, help="all scans of a fold; with --atlas, --model and --seed")
    which.add_argument("--checkpoint", type=Path, help="folder of a trained fold; one scan, no configuration is needed")
    one.add_argument("--atlas", help="name; by hand also a folder or a label image [that of the checkpoint's folder]")
    one.add_argument("--model")
    one.add_argument("--seed", type=int)
    by_hand = one.add_argument_group("for one scan by hand")
    by_hand.add_argument("--series", type=Path, help="its ROI series, time × ROIs: .npy, .csv, .tsv, .txt, .1D or .mat")
    by_hand.add_argument("--out", type=Path, help="folder for the page, tables, pictures and the map")
    by_hand.add_argument("--class", dest="class_name", help="class to explain [the predicted one]")
    by_hand.add_argument("--tr", type=float, help="seconds [RepetitionTime of the JSON file beside the series]")
    by_hand.add_argument("--events", type=Path, help="BIDS table of the scan's events, drawn beside importance")
    by_hand.add_argument("--hrf-shift", type=float, default=0.0, help="seconds by which events are drawn later [0]")
    by_hand.add_argument("--tokens", type=int, default=5, help="landmarks [5]")
    by_hand.add_argument("--labels", type=Path, help="table of the ROIs (value, name, network, hemisphere)")
    by_hand.add_argument(
        "--no-standardize", dest="standardize", action="store_false", help="series are z-scored already"
    )
    return one


def _add_parcellate(one: argparse.ArgumentParser) -> None:
    """Either a scan of the configured dataset (as the workflow asks), or any image by hand."""
    which = one.add_mutually_exclusive_group(required=True)
    which.add_argument("--scan", help="scan of the configured dataset, with the configured atlases")
    which.add_argument("image", nargs="?", help="4D NIfTI in a reference space; no configuration is needed")
    by_hand = one.add_argument_group("for an image by hand")
    by_hand.add_argument("--atlas", nargs="+", help="names, folders, or label images; all in one pass over the file")
    by_hand.add_argument("--out", help="series.npy (time × ROIs); for several atlases a folder, or a name with {atlas}")
    by_hand.add_argument("--mask", help="image on the same grid; default: all voxels of the ROIs")
    by_hand.add_argument("--confounds", help="table of confounds; without --denoise all its columns are regressed out")
    by_hand.add_argument("--denoise", help="what to choose from it: a file in config/denoise, or the path of one")
    by_hand.add_argument("--space", help="reference space of the image, where its name declares none")
    by_hand.add_argument("--tr", type=float, help="seconds; default: the header's")
    by_hand.add_argument("--coverage", type=float, help="smallest share of an ROI's voxels; below it the ROI is NaN")
    by_hand.add_argument("--no-standardize", dest="standardize", action="store_false", help="leave out the z-scoring")
    by_hand.add_argument("--fetch", action="store_true", help="fetch an atlas that is not here; needs the network")
