"""BIDS atlases: names, networks and hemispheres from their tables, spaces from the names of their images."""

import nibabel as nib
import numpy as np
import pytest

from bolt.atlases.description import describe_atlas
from bolt.atlases.image import load_atlas
from bolt.atlases.labels import load_labels
from bolt.config import Config
from bolt.io.bids import atlas_name, table_of
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import sha256, write_json

SIX, NINE = "MNI152NLin6Asym", "MNI152NLin2009cAsym"
TABLES = {
    "XCP-D": (
        "index\tlabel\tnetwork_label\tlabel_7network\tatlas_name\n"
        "1\tLH_Vis_1\tVis\t7Networks_LH_Vis_1\t4S\n2\tRH_Default_pCunPCC_2\tDefault\tx\t4S\n101\tLH-Pu\tn/a\tn/a\tCIT\n",
        ["LH_Vis_1", "RH_Default_pCunPCC_2", "LH-Pu"],
        ["Vis", "Default", None],
        ["L", "R", "L"],
    ),
    "TemplateFlow": (
        "index\tname\tcolor\n0\tBackground\t#000000\n1\tLeft Putamen\t#ff0000\n2\tBrainstem\t#ff0000\n"
        "101\tthal-rh-pulvinar\t#00ff00\n",
        ["Left Putamen", "Brainstem", "thal-rh-pulvinar"],
        [None] * 3,
        ["L", None, "R"],
    ),
    "brackets": (
        "index\tname\n1\tHeschl's Gyrus (H1 and H2)\n2\tAmygdala (L)\n101\tR_V1_lr\n",
        ["Heschl's Gyrus (H1 and H2)", "Amygdala (L)", "R_V1_lr"],
        [None] * 3,
        [None, "L", "R"],
    ),
    "BIDS": (
        "index\tname\themisphere\tnetwork\n101\tArea\tright\tA\n1\tArea\tL\tA\n2\tVermis\tmidline\tn/a\n",
        ["Area 1", "Vermis", "Area 101"],
        ["A", None, "A"],
        ["L", "M", "R"],
    ),
}


def write_image(path, values=(1, 2, 101)):
    data = np.zeros((6, 5, 4), np.int16)
    for k, value in enumerate(values):
        data[2 * k : 2 * k + 2, 1:4] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(data, np.diag([3.0, 3, 3, 1])), path)
    return str(path)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("image", "labels"),
    [
        (f"atlas-Mine_space-{NINE}_res-2_dseg.nii.gz", "atlas-Mine_dseg.tsv"),
        (f"tpl-{NINE}_res-02_atlas-Mine_dseg.nii.gz", f"tpl-{NINE}_atlas-Mine_dseg.tsv"),
        (f"tpl-{NINE}_atlas-Mine_dseg.nii", f"tpl-{NINE}_atlas-Mine_dseg.tsv"),
    ],
)
def test_tables_in_use(tmp_path, table, image, labels):
    text, names, networks, sides = TABLES[table]
    path = write_image(tmp_path / image)
    (tmp_path / labels).write_text(text)
    atlas = load_atlas(path)
    assert (atlas.name, atlas.spaces, atlas.sha256) == ("Mine", [NINE], sha256(path))
    assert atlas.values.tolist() == [1, 2, 101] and atlas.labels.name.tolist() == names
    assert atlas.labels.network.where(atlas.labels.network.notna(), None).tolist() == networks
    assert atlas.labels.hemisphere.where(atlas.labels.hemisphere.notna(), None).tolist() == sides
    assert Config(dataset="x", atlases=[path]).atlas_places == {"Mine": path}


def test_a_folder_has_an_image_for_each_space(tmp_path):
    folder = tmp_path / "atlas-4S156Parcels"
    (folder / "x").mkdir(parents=True)
    for space, resolution in ((SIX, "1"), (SIX, "2"), (NINE, "2")):
        write_image(folder / f"atlas-4S156Parcels_space-{space}_res-{resolution}_dseg.nii.gz")
    (folder / "atlas-4S156Parcels_dseg.tsv").write_text(TABLES["XCP-D"][0])
    about = {"Name": "4S", "License": "CC0", "ReferencesAndLinks": ["Paper 1", "Paper 2"]}
    write_json(about, folder / "atlas-4S156Parcels_description.json")
    described = describe_atlas(str(folder))
    assert (described.name, described.licence, described.citation) == ("4S156Parcels", "CC0", "Paper 1; Paper 2")
    assert described.by_space[SIX].file == f"atlas-4S156Parcels_space-{SIX}_res-2_dseg.nii.gz"
    assert load_atlas(str(folder), space=NINE).spaces == [NINE] and set(described.spaces) == {SIX, NINE}
    assert atlas_name(folder) == "4S156Parcels"
    write_image(folder / f"atlas-Other_space-{SIX}_dseg.nii.gz")
    (folder / "atlas-Other_dseg.tsv").write_text(TABLES["BIDS"][0])
    with pytest.raises(ConfigError, match="several atlases: 4S156Parcels, Other"):
        describe_atlas(str(folder))


def test_the_table_is_the_most_specific_of_the_same_atlas(tmp_path):
    image = tmp_path / f"tpl-{SIX}_res-01_atlas-A_desc-7Networks_dseg.nii.gz"
    for name in ("atlas-A", f"tpl-{SIX}_atlas-A_desc-7Networks", "atlas-A_desc-17Networks", "atlas-B"):
        (tmp_path / f"{name}_dseg.tsv").write_text("index\tname\n")
    assert table_of(image).name == f"tpl-{SIX}_atlas-A_desc-7Networks_dseg.tsv"
    assert atlas_name(image) == "A7Networks"
    assert table_of(tmp_path / "atlas-B_probseg.nii.gz") is None
    assert table_of(tmp_path / f"space-{SIX}_dseg.nii.gz") is None


def test_no_atlas_stands_for_another(tmp_path):
    images = [write_image(tmp_path / f"atlas-X_space-{SIX}_scale-{n}_dseg.nii.gz") for n in (2, 5)]
    for n in (2, 5):
        (tmp_path / f"atlas-X_scale-{n}_dseg.tsv").write_text(TABLES["BIDS"][0])
    assert Config(dataset="x", atlases=images).atlas_places == dict(zip(["X2", "X5"], images, strict=True))
    with pytest.raises(ConfigError, match="several atlases: X2, X5"):
        describe_atlas(str(tmp_path))
    twins = [write_image(tmp_path / folder / "my_atlas.nii.gz") for folder in "ab"]
    with pytest.raises(ConfigError, match=f"two atlases have one name: {twins[0]} and {twins[1]}"):
        _ = Config(dataset="x", atlases=twins).atlas_places


def test_maps_with_a_table(tmp_path):
    maps = np.random.default_rng(0).random((4, 4, 4, 2)).astype(np.float32)
    path = tmp_path / f"tpl-{NINE}_res-02_atlas-DiFuMo_desc-2dimensions_probseg.nii.gz"
    nib.save(nib.Nifti1Image(maps, np.eye(4)), path)
    alone = load_atlas(str(path))
    assert alone.is_maps and alone.labels.name.tolist() == ["1", "2"] and alone.spaces == [NINE]
    (tmp_path / f"tpl-{NINE}_atlas-DiFuMo_desc-2dimensions_probseg.tsv").write_text(
        "Component\tDifumo_names\tYeo_networks7\tYeo_networks17\tGM\n"
        "1\tFusiform gyrus\tNo network found\tx\t0.8\n2\tIntraparietal sulcus RH\tContA\tx\t0.5\n"
    )
    atlas = load_atlas(str(path))
    assert atlas.is_maps and atlas.name == "DiFuMo2dimensions"
    assert atlas.labels.name.tolist() == ["Fusiform gyrus", "Intraparietal sulcus RH"]
    assert atlas.labels.network.tolist() == [None, "ContA"] and atlas.labels.hemisphere.tolist() == [None, "R"]


@pytest.mark.parametrize(
    ("image", "table", "error", "message"),
    [
        ("atlas-X_dseg.nii.gz", TABLES["BIDS"][0], ConfigError, "declares no space"),
        (f"atlas-X_space-{SIX}_dseg.nii.gz", "index\tregion\n1\ta\n", DataError, "no column for the ROIs' name"),
        (f"atlas-X_space-{SIX}_dseg.nii.gz", "id\tname\n1\ta\n", DataError, "no column for the ROIs' value"),
        (f"atlas-X_space-{SIX}_dseg.nii.gz", "index\tname\n1\ta\n2\tb\n", DataError, "101 are in the image but not"),
    ],
)
def test_what_does_not_fit(tmp_path, image, table, error, message):
    path = write_image(tmp_path / image)
    (tmp_path / "atlas-X_dseg.tsv").write_text(table)
    with pytest.raises(error, match=message):
        load_atlas(path)


def test_tables_in_other_encodings(tmp_path):
    path, table = write_image(tmp_path / f"atlas-X_space-{SIX}_dseg.nii.gz"), tmp_path / "atlas-X_dseg.tsv"
    text = "index\tname\n1\tFrontal supérieur\n2\tb\n101\tc\n"
    table.write_text(text, encoding="utf-16")  # Excel's "Unicode text"
    assert load_atlas(path).labels.name[0] == "Frontal supérieur"
    table.write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match="not UTF-8 text"):
        load_atlas(path)


def test_an_image_alone_serves_the_workflow_too(tmp_path):
    path = write_image(tmp_path / f"my_labels_space-{SIX}.nii.gz")
    assert describe_atlas(path).name == "mylabelsspaceMNI152NLin6Asym" == load_atlas(path).name
    assert load_labels(path).name.tolist() == ["1", "2", "101"]
    for path, words in ((write_image(tmp_path / "labels.nii.gz"), "declares no space"), ("absent.nii.gz", "missing")):
        with pytest.raises(ConfigError, match=words):
            describe_atlas(path)
