"""Output of XCP-D, in the layouts of its releases."""

import json

import numpy as np
import pandas as pd

NAMES = ["LH_Vis_1", "LH_SomMot_1", "RH_Vis_1", "RH_Default_1", "LH-Pu"]
T = 30
SPACE = "space-MNI152NLin2009cAsym"
SOURCES = ["sub-01_task-rest", "sub-02_task-rest", "sub-03_task-rest", "sub-04_task-rest"]


def random_series(seed):
    return pd.DataFrame(np.random.default_rng(seed).standard_normal((T, len(NAMES))), columns=NAMES)


class Release:
    """Names of the files of one release of XCP-D."""

    def __init__(self, series, motion, atlas, coverage):
        self.series, self.motion, self.atlas, self.coverage = series, motion, atlas, coverage

    def write(self, folder):
        """Write a folder of derivatives of four people; the last parcel of the first is not covered."""
        for i, source in enumerate(SOURCES):
            func = folder / source.split("_")[0] / "func"
            func.mkdir(parents=True)
            series = random_series(i)
            if i == 0:
                series["LH-Pu"] = np.nan
            series.to_csv(func / f"{source}_{self.series}.tsv", sep="\t", na_rep="n/a", index=False)
            covered = pd.Series(1.0, NAMES, name="coverage")
            covered.to_csv(func / f"{source}_{self.coverage}.tsv", sep="\t", index_label="Node")
            about = {"RepetitionTime": 2.2, "SoftwareFilters": {"Bandpass filter": {}}}
            (func / f"{source}_{SPACE}_res-2_desc-denoised_bold.json").write_text(json.dumps(about))
            motion = pd.DataFrame({"rot_x": 0.0, "framewise_displacement": [np.nan, 0.2, 0.4]})
            motion.to_csv(func / f"{source}_{self.motion}.tsv", sep="\t", na_rep="n/a", index=False)
            outliers = pd.DataFrame({"framewise_displacement": [0] * T})
            outliers.to_csv(func / f"{source}_outliers.tsv", sep="\t", index=False)
            (func / f"{source}_desc-confounds_timeseries.tsv").write_text("csf\twhite_matter\n1\t2\n2\t1\n")
            matrix = self.series.replace("stat-mean_timeseries", "stat-pearsoncorrelation_relmat")
            pd.DataFrame(np.eye(5), NAMES, NAMES).to_csv(func / f"{source}_{matrix}_relmat.tsv", sep="\t")
        labels = {"index": range(1, 6), "label": NAMES, "network_label": [*["Vis", "SomMot"], "Vis", "Default", "n/a"]}
        (folder / self.atlas).parent.mkdir(parents=True)
        pd.DataFrame(labels).to_csv(folder / self.atlas, sep="\t", index=False)
        return folder


RELEASES = {
    "0.2": Release(
        f"{SPACE}_atlas-4S5Parcels_timeseries",
        "desc-filtered_motion",
        "atlases/atlas-4S5Parcels/atlas-4S5Parcels_dseg.tsv",
        f"{SPACE}_atlas-4S5Parcels_coverage",
    ),
    "0.10": Release(
        f"{SPACE}_seg-4S5Parcels_stat-mean_timeseries",
        "motion",
        "atlases/atlas-4S5Parcels/atlas-4S5Parcels_dseg.tsv",
        f"{SPACE}_seg-4S5Parcels_stat-coverage_bold",
    ),
    "0.14": Release(
        f"{SPACE}_atlas-4S5Parcels_stat-mean_timeseries",
        "motion",
        "sourcedata/atlases/tpl-MNI152NLin2009cAsym/tpl-MNI152NLin2009cAsym_atlas-4S5Parcels_dseg.tsv",
        f"{SPACE}_atlas-4S5Parcels_stat-coverage_bold",
    ),
}


def participants(folder, n=4):
    rows = {"participant_id": [f"sub-{i:02d}" for i in range(1, n + 1)], "dx": list("abababab"[:n])}
    pd.DataFrame(rows).to_csv(folder / "participants.tsv", sep="\t", index=False)
    return folder / "participants.tsv"
