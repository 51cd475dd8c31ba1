"""Predictions for new scans by all models of a pack, and whether a scan resembles the training cohort.

Scans are files of ROI series, a table that names them, or results of the workflow.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config import nearest
from bolt.datasets import COLUMNS as OF_SCANS
from bolt.datasets.bids_series import series_tr
from bolt.datasets.participants import OLDEST, to_institutions
from bolt.evaluate.metrics import metrics_of, pooled
from bolt.io.errors import ConfigError, DataError, shorten_list
from bolt.io.files import SEPARATORS, columns, read_text
from bolt.io.people import known_values, people
from bolt.io.series_files import (
    SUFFIXES,
    in_atlas_order,
    kept_volumes,
    read_description,
    read_named_series,
    series_suffix,
    sidecar_of,
)
from bolt.io.volumes import require_tr
from bolt.models.parts.calibration import with_temperature
from bolt.series.cache import SeriesCache, connectivity, volumes_of, zscore
from bolt.share.cohort import (
    IN_COHORT,
    TRAINED,
    distance,
    flags,
    floor_name,
    image_of,
    known_scans,
    percentile,
    predict_floor,
    refusal,
)
from bolt.share.models import Pack
from bolt.share.scans import SeriesInMemory, scan_table
from bolt.training.ensembles import predict_each

log = logging.getLogger(__name__)

COLUMNS, EXCLUDED, METRIC_COLUMNS = (columns("share", table) for table in ("predictions", "excluded", "metrics"))
NUMBERS = ("age", "mean_fd", "tr")
DESCRIBED = ("group", "site", "sex", *NUMBERS)
ABOUT_SCANS = ("scan_id", "subject", "session", "run", "task", *DESCRIBED)
"""Columns of a table of series that are read, if there are any."""
LONGEST = 200
"""Bytes of a scan's name, which becomes that of a folder."""


@dataclass
class NewScans:
    """Scans to predict.

    Attributes
    ----------
    cache : SeriesCache or None
        Their z-scored series in the model's columns; None if there is none.
    labels : Series or None
        True labels, where known.
    excluded : list of tuple
        scan_id and reason of scans that cannot be predicted.
    volumes : list of array
        Which volumes of the acquisition each series holds.
    """

    cache: SeriesCache | None
    labels: pd.Series | None = None
    excluded: list[tuple[str, str]] = field(default_factory=list)
    volumes: list[NDArray[np.integer]] = field(default_factory=list)


def read_new_scans(
    source: Sequence[Path], pack: Pack, tr: float | None, label: str | None, labels: pd.DataFrame | None = None
) -> NewScans:
    """Read files of series, or a table of them.

    Parameters
    ----------
    source : sequence of Path
        Files of series; or one table (``.tsv``, ``.csv``) with the columns ``subject`` and ``file``, and, where known,
        those of `ABOUT_SCANS`. Files are relative to the table.
    pack : Pack
        What series must be like.
    tr : float, optional
        Seconds, for scans whose repetition time is in no file.
    label : str, optional
        Column of the table with the true labels.
    labels : DataFrame, optional
        ROIs of the model's atlas, by which columns with names are sorted.

    Raises
    ------
    DataError, ConfigError
        The table cannot be read, or has no such column. What is wrong with single scans is in the result.
    """
    table = _table_of(source)
    if label is not None and label not in table:
        known = [column for column in table if column != "file"]
        raise ConfigError(
            f"--label {label}: no such column", hint=f"Columns: {', '.join(known) or 'none'}{nearest(label, known)}"
        )
    for column in table.columns.intersection([*DESCRIBED, label]):  # as in a table of training scans
        table[column] = known_values(table[column], f"{source[0]}: {column}", label=column == label)
    for column, most in (("age", OLDEST), ("mean_fd", np.inf)):  # as of training scans, for which a code is no age
        if column in table and column != label:
            numbers = pd.to_numeric(table[column], errors="coerce")
            table[column] = table[column].mask((numbers < 0) | (numbers > most))
    series, rows, excluded = list[NDArray[np.float32]](), list[dict[str, Any]](), list[tuple[str, str]]()
    volumes = list[NDArray[np.integer]]()
    for row in table.to_dict("records"):
        try:
            for column in NUMBERS:
                if pd.notna(row.get(column)):
                    number = pd.to_numeric(row[column], errors="coerce")
                    if np.isnan(number):
                        raise DataError(f"{column} '{row[column]}' is not a number", hint="Give a number, or n/a")
                    row[column] = require_tr(float(number), "tr") if column == "tr" else float(number)
            path = Path(row["file"])
            read_sidecar(path, pack)
            row["tr"] = series_tr(path, row["tr"] if pd.notna(row.get("tr")) else None)
            values = zscore(series_for_model(path, pack, pack.atlas["name"], labels))
            volumes.append(kept_volumes(row["file"], len(values)))
            series.append(values)
            rows.append(row)
        except DataError as error:
            excluded.append((str(row["scan_id"]), str(error)))
    if not series:
        return NewScans(None, None, excluded)
    known, scans = pd.DataFrame(rows), scan_table(len(rows))
    for column in ABOUT_SCANS:
        if column in known:
            scans[column] = known[column].astype(float) if column in NUMBERS else known[column]
    scans["group"] = people(known) if "group" in known else known["subject"]
    scans["site"] = to_institutions(scans["site"], pack.about.get("institutions", {}))  # which old packs lack
    if tr is not None:
        scans["tr"] = scans["tr"].fillna(tr)
    return NewScans(SeriesInMemory(series, scans), None if label is None else known[label], excluded, volumes)


def _table_of(source: Sequence[Path]) -> pd.DataFrame:
    """Return a row per file, with a unique name of each scan: the lines of a table, or the files that are given."""
    table, folder = None, Path()
    if len(source) == 1 and source[0].suffix in (".tsv", ".csv") and source[0].is_file():
        lines = source[0].read_bytes()[:100_000].decode("utf-8-sig", "replace").casefold().split("\n")[:2]
        cells = re.split("[\t,;\n]", re.sub('["\r]', "", "\n".join(lines)))
        if {"subject", "file"} & set(cells) or any(cell.endswith(SUFFIXES) for cell in cells):
            table, folder = read_text(source[0]), source[0].parent
            if not {"subject", "file"} <= set(table):
                what = f"a table of scans needs the columns subject and file; found {shorten_list(table)}"
                raise DataError(what, where=source[0], hint=f"Name them so. {SEPARATORS}")
    if table is None:  # files of series
        for path in source:
            if not path.is_file():
                what = "not a file" if path.exists() else "file not found"
                raise DataError(what, where=path, hint="Correct the path")
            if (suffix := series_suffix(path)) not in SUFFIXES:
                hint = f"Give {', '.join(SUFFIXES)}"
                raise DataError(f"'{suffix}' is no format of series", where=path, hint=hint)
        names = [path.name.removesuffix(path.suffix) for path in source]
        files = [str(path) for path in source]
        table = pd.DataFrame({"subject": map(subject_of, names), "scan_id": names, "file": files})
    if table.empty:
        raise DataError("the table has no rows", hint="Name a file per row")
    if table["file"].isna().any() or table["subject"].isna().any():
        raise DataError("a row without subject or file", hint="Fill it in, or remove the row")
    stems = table["file"].map(lambda file: Path(file).name.split(".")[0])
    table = table.assign(file=[str(folder / file) for file in table["file"]])
    table["scan_id"] = table["scan_id"].fillna(stems) if "scan_id" in table else stems
    for name in table["scan_id"]:
        if not name.isprintable() or "/" in name or name in (".", "..") or len(name.encode()) > LONGEST:
            raise DataError(
                f"'{name[:50]}' cannot name a scan", hint="Give names without '/', as 'scan_id' or file names"
            )
    twice = table["scan_id"][table["scan_id"].duplicated()]
    if len(twice):
        raise DataError(f"two scans are called '{twice.iloc[0]}'", hint="Add a column 'scan_id' with unique names")
    return table


def subject_of(name: str) -> str:
    """Return the subject in the name of a file: ``sub-01`` of ``sub-01_task-rest``, or else the name itself."""
    return name.split("_")[0] if name.startswith("sub-") else name


def read_sidecar(path: Path, pack: Pack) -> dict[str, Any]:
    """Return what the JSON file beside series states; refuse series that the model cannot read (DataError)."""
    about = read_description(path)
    require_same(about, pack, sidecar_of(path))
    return about


def require_same(about: dict[str, Any], pack: Pack, where: Path | None) -> None:
    """Refuse series that state another atlas, image of the atlas, space or denoising than the model's (DataError)."""
    denoising = pack.about.get("series", {}).get("denoising") or {}
    for name, stated, expected in (
        ("atlas", about.get("Atlas"), pack.atlas["name"]),
        ("an atlas image with checksum", about.get("AtlasSHA256"), pack.atlas["sha256"]),
        ("space", about.get("Space"), pack.space),
        ("denoising", (about.get("Denoising") or {}).get("name"), denoising.get("name")),
    ):
        if expected and stated not in (None, expected):
            what = f"made with {name} {stated}, but the model was trained on {expected}"
            option = "--denoise" if name == "denoising" else name
            raise DataError(what, where=where, hint=f"Make series with {option} {expected}")


def series_for_model(path: Path, pack: Pack, atlas: str, labels: pd.DataFrame | None) -> NDArray[np.float32]:
    """Read series of the ROIs that the models were trained on: all of the atlas, or those that their cache kept.

    Parameters
    ----------
    path : Path
    pack : Pack
    atlas : str
        Name of the models' atlas; empty if unknown.
    labels : DataFrame, optional
        All ROIs of the atlas.

    Raises
    ------
    DataError
        They are of other ROIs, or too short.
    """
    values = pack.rois
    series, columns = read_named_series(path, values, [] if labels is None else labels["value"].tolist())
    if labels is None:
        series = in_atlas_order(series, columns, path, values, None)
    else:
        whole = series.shape[1] == len(labels)
        rois = labels if whole else labels.set_index("value", drop=False).loc[values]
        series = in_atlas_order(series, columns, path, rois["value"].tolist(), rois["name"].tolist())
        series = series[:, labels["value"].isin(values).to_numpy()] if whole else series
    n_rois, n_columns = len(values), series.shape[1]
    if n_columns != n_rois:
        hint = "Make series with the atlas that the model was trained with" + (f", '{atlas}'" * bool(atlas))
        if len(series) == n_rois:
            hint = "Transpose the array: rows must be volumes, columns ROIs"
        known = f" (atlas '{atlas}')" if atlas else ""
        raise DataError(f"{n_columns} ROIs, but this model reads {n_rois}{known}", where=path, hint=hint)
    if len(series) < pack.shortest:
        hint = "Give a longer scan, or a model with a shorter window"
        raise DataError(f"{len(series)} volumes, but this model needs at least {pack.shortest}", where=path, hint=hint)
    return series


def read_results(results: Path, pack: Pack, label: str | None) -> NewScans:
    """Read the series that the workflow has made of new scans.

    Parameters
    ----------
    results : Path
        ``results/<dataset>``.
    pack : Pack
    label : str, optional
        Given if the labels in the results are wanted.

    Raises
    ------
    DataError, ConfigError
        There is no cache of the model's atlas and space; it has other ROIs, or was made of another image of the atlas
        or by another denoising than the model's; scans have no label.
    """
    atlas = pack.atlas["name"]
    manifests = sorted((results / "cache" / atlas).glob("*/manifest.json"))
    manifests = [path for path in manifests if pack.space is None or path.parent.name.startswith(f"{pack.space}-")]
    if len(manifests) != 1:
        found = ", ".join(sorted(path.parent.parent.name for path in results.glob("cache/*/*/manifest.json")))
        hint = f"Its atlases: {found or 'none'}"
        raise DataError(f"{len(manifests)} caches of atlas '{atlas}' in space {pack.space}", where=results, hint=hint)
    cache = SeriesCache(manifests[0].parent)
    theirs, ours = cache.rois["value"].tolist(), pack.rois
    missing = sorted(set(ours) - set(theirs))
    if missing:
        raise DataError(f"ROI {missing[0]} of the model is missing ({len(missing)} such ROIs)", where=cache.folder)
    require_same(cache.manifest["settings"], pack, cache.folder)
    sidecar, image = image_of(results / "series" / cache.folder.name, cache.index["scan_id"], atlas)
    require_same({"AtlasSHA256": image}, pack, sidecar)
    labels = cache.index["label"] if label is not None and cache.index["label"].notna().any() else None
    if label is not None and labels is None:
        raise ConfigError(f"--label {label}: scans have no label there", where=results / "scans.tsv")
    columns = [theirs.index(value) for value in ours]
    series = [np.ascontiguousarray(cache.series(i)[:, columns]) for i in range(len(cache))]
    scans = cache.index[[column for column in cache.index if column in OF_SCANS]]
    scans = scans.assign(site=to_institutions(scans["site"], pack.about.get("institutions", {})))
    folder, ending = results / "series" / cache.folder.name, f"_atlas-{atlas}_timeseries.npy"
    rows = cache.index.to_dict("records")
    volumes = [volumes_of(row, folder / row["scan_id"] / f"{row['scan_id']}{ending}") for row in rows]
    return NewScans(SeriesInMemory(series, scans), labels, volumes=volumes)


def predict_scans(pack: Pack, scans: NewScans, *, any_tr: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Predict new scans.

    Parameters
    ----------
    pack : Pack
    scans : NewScans
    any_tr : bool
        Predict scans of any repetition time.

    Returns
    -------
    table : DataFrame
        `COLUMNS` (label only if known), and after ``predicted`` for each class ``p_<class>``, the mean over models, and
        ``calibrated_<class>``, the mean after temperature scaling, where the pack has a temperature.
    excluded : DataFrame
        `EXCLUDED`.

    """
    excluded = [(name, "predict", reason) for name, reason in scans.excluded]
    cache, used, rows = scans.cache, dict[int, Any](), list[dict[str, Any]]()
    cohort, members = pack.about.get("cohort", {}), pack.estimator.members_
    for i, scan in enumerate(cache.index.itertuples() if cache is not None else ()):
        reason = _unseen_site(pack, scan.site) or ("" if any_tr else refusal(scan, cohort))
        if reason:
            excluded.append((str(scan.scan_id), "predict", reason))
        else:
            used[i] = scan
    if cache is not None and used:
        known = known_scans(members, pack.place, cache)
        predictions = predict_each(members, cache, pack.estimator.device, list(used))
        for position, (i, scan) in enumerate(used.items()):
            series, place = cache.series(i), None
            n_uncovered = int((~series.any(axis=0)).sum())
            row = {"scan_id": scan.scan_id, "subject": scan.subject, "group": scan.group}
            row |= {"training_scan": known[i].twin, "n_models": int(known[i].models.sum()), "n_volumes": scan.length}
            row |= {"tr": scan.tr, "mean_fd": scan.mean_fd, "n_uncovered": n_uncovered}
            if scans.labels is not None:
                row["label"] = scans.labels.iloc[i]
            if pack.connectivity is not None:
                away = distance(connectivity(series), pack.connectivity)
                place = percentile(away, cohort["distance"])
                row |= {"distance": away, "distance_percentile": place}
            row["flags"] = "; ".join(filter(None, [known[i].flag, *flags(scan, n_uncovered, place, cohort)]))
            rows.append(row | _combined(pack, predictions[known[i].models, position]))
    table = pd.DataFrame(rows)
    columns = [name for name in column_descriptions(pack) if name in table or name != "label"]
    return table.reindex(columns=columns), pd.DataFrame(excluded, columns=list(EXCLUDED))


def _unseen_site(pack: Pack, site: Any) -> str:
    """Return why models that remove site effects cannot read a scan of this site; empty if they can."""
    for part in (part for member in pack.estimator.members_ for part in member.parts):
        effects = getattr(part.model, "site_effects", None)
        if effects is not None and part.info["model"]["unseen_site"] != "pooled" and site not in effects.sites:
            name = f"site '{site}'" if isinstance(site, str) else "no site"
            return f"{name}, but the models remove the effects of the sites that they know: {', '.join(effects.sites)}"
    return ""


def _combined(pack: Pack, values: NDArray[np.float64]) -> dict[str, Any]:
    """Combine the predictions of some models for one scan, (models, classes) or (models,)."""
    classes = pack.classes
    if classes is None:
        return {"predicted": float(values.mean()), "spread": float(values.std())}
    mean = values.mean(axis=0)
    best = int(mean.argmax())
    row: dict[str, Any] = {"predicted": classes[best]}
    row |= {f"p_{name}": float(p) for name, p in zip(classes, mean, strict=True)}
    if temperature := pack.about.get("temperature"):
        calibrated = with_temperature(values, temperature).mean(axis=0)
        row |= {f"calibrated_{name}": float(p) for name, p in zip(classes, calibrated, strict=True)}
    agreement = float((values.argmax(axis=1) == best).mean())
    return row | {"agreement": agreement, "spread": float(values[:, best].std())}


def column_descriptions(pack: Pack) -> dict[str, str]:
    """Return the columns of the table of predictions with their descriptions, in order."""
    classes, temperature, columns = pack.classes or (), pack.about.get("temperature"), dict[str, str]()
    for name, description in COLUMNS.items():
        if pack.classes is not None or name != "agreement":
            columns[name] = description
        if name == "predicted":
            columns |= {f"p_{one}": f"Probability of class {one}, mean over models" for one in classes}
            scaled = f"The same after temperature scaling of each model ({temperature or 0:g})"
            columns |= {f"calibrated_{one}": scaled for one in classes if temperature}
    return columns


def external_metrics(pack: Pack, table: pd.DataFrame, scans: NewScans) -> pd.DataFrame:
    """Compute the metrics of labelled new scans, and of the confound floor.

    Parameters
    ----------
    pack : Pack
    table : DataFrame
        From `predict_scans`, with labels.
    scans : NewScans

    Returns
    -------
    DataFrame
        `METRIC_COLUMNS`.

    Raises
    ------
    DataError
        A label is missing, or is no class of the model.
    """
    classes = pack.classes
    known = table[table["label"].notna() & ~table["flags"].str.startswith(TRAINED)]
    if known.empty:
        raise DataError("no predicted scan has a label, unless the models were trained on it", hint="Leave --label out")
    strange = [] if classes is None else sorted(set(known["label"].astype(str)) - set(classes))
    if strange:
        hint = f"Its classes: {', '.join(classes or ())}. Rename yours"
        raise DataError(f"label '{strange[0]}' is no class of the model", hint=hint)
    judged = {"model": known}
    if classes and pack.about.get("temperature"):
        p = known[[f"calibrated_{name}" for name in classes]].to_numpy()
        named = {f"p_{name}": p[:, k] for k, name in enumerate(classes)}
        judged["model, calibrated"] = known.assign(predicted=[classes[k] for k in p.argmax(axis=1)], **named)
    if pack.floor is not None and scans.cache is not None:
        of_cohort = known["training_scan"].notna() | known["flags"].str.contains(IN_COHORT, regex=False)
        if n := of_cohort.sum():
            log.info("no confound floor: %d of these scans are of the training cohort, to which it is fitted", n)
        elif (floor := predict_floor(pack.floor, scans.cache)) is not None:
            judged[floor_name(pack.floor)] = known[["scan_id", "label", "group"]].join(floor, on="scan_id")
    rows = []
    for name, predictions in judged.items():
        summary = pooled(predictions, classes)
        counts = {"n_scans": len(predictions), "n_groups": summary["n_groups"]}
        rows += [{"model": name, "metric": metric, **summary[metric], **counts} for metric in metrics_of(classes)]
    return pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
