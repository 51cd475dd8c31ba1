"""Staging: only verified files appear, and unknown checksums are recorded."""

import gzip
import hashlib
import re
import shutil
import zipfile

import nibabel as nib
import numpy as np
import pytest

from bolt.atlases import description as atlas_files
from bolt.atlases.description import ATLASES, describe_atlas, known_atlases
from bolt.atlases.image import load_atlas
from bolt.atlases.labels import load_labels
from bolt.atlases.staging import stage_atlas, stage_atlases, stage_image
from bolt.config import Config
from bolt.io import places
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_yaml, sha256, write_yaml


def test_only_a_file_with_the_right_checksum_is_kept_also_from_an_archive(tmp_path):
    right, out = [hashlib.sha256(b"atlas").hexdigest()], tmp_path / "in"
    (tmp_path / "a.nii").write_bytes(b"atlas")
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as archive:
        archive.writestr("folder/a.nii", b"atlas")
    for source in ("a.nii", "pack.zip"):
        url = (tmp_path / source).as_uri()
        with pytest.raises(DataError, match="abc"):
            stage_image(url, out / "a.nii", ["abc"])
        assert not (out / "a.nii").exists()
        stage_image(url, out / "a.nii", right)
        assert (out / "a.nii").read_bytes() == b"atlas" and len(list(out.iterdir())) == 1
        (out / "a.nii").unlink()
    with pytest.raises(DataError, match="does not contain other"):
        stage_image(url, out / "other.nii", [])


def test_an_available_atlas_is_not_fetched():
    stage_atlases(Config(dataset="phantom", atlases=["dosenbach160"]))
    assert not list((ATLASES / "dosenbach160").glob("*.nii*"))


# ---- a family ----------------------------------------------------------------------------------


@pytest.fixture
def family(tmp_path, monkeypatch):
    """Describe the Schaefer family with a local folder as publisher, and parcellations of 4 parcels."""
    site, atlases = tmp_path / "site", tmp_path / "atlases"
    site.mkdir()
    keys = read_yaml(ATLASES / "schaefer" / "atlas.yaml")
    for holder, key in ((keys["images"]["MNI152NLin6Asym"], "url"), (keys, "labels_url")):
        holder[key] = f"{site.as_uri()}/{holder[key].rsplit('/')[-1]}"
    write_yaml(keys, atlases / "schaefer" / "atlas.yaml")
    data = np.zeros((5, 5, 5), np.int16)
    data[1:, 2, 2] = [1, 2, 3, 4]
    stem = "Schaefer2018_200Parcels_17Networks_order"
    nib.save(nib.Nifti1Image(data, np.diag([2.0, 2, 2, 1])), site / f"{stem}_FSLMNI152_2mm.nii.gz")
    names = ["LH_VisCent_ExStr_1", "LH_TempPar_1", "RH_ContA_IPS_1", "RH_TempPar_1"]
    rows = [f"{k}\t17Networks_{name}\t120\t18\t{k}\t0\n" for k, name in enumerate(names, 1)]
    (site / f"{stem}.txt").write_text("".join(rows))
    monkeypatch.setattr(atlas_files, "ATLASES", atlases)
    atlas_files._members.cache_clear()
    yield site, atlases / "schaefer", stem
    atlas_files._members.cache_clear()


def test_a_member_is_staged_with_its_labels_and_its_checksum_recorded(family, tmp_path):
    site, folder, stem = family
    with pytest.raises(DataError, match=r"no table of labels.*BOLT_ATLAS_DIR.*target 'resources'.*labels|order.txt"):
        load_atlas("schaefer200_17")
    stage_atlas("schaefer200_17")
    atlas = load_atlas("schaefer200_17")
    assert atlas.labels.name.tolist() == ["LH_VisCent_ExStr_1", "LH_TempPar_1", "RH_ContA_IPS_1", "RH_TempPar_1"]
    assert atlas.labels.network.tolist() == ["VisCent", "TempPar", "ContA", "TempPar"]
    assert atlas.labels.hemisphere.tolist() == ["L", "L", "R", "R"]
    image = folder / f"{stem}_FSLMNI152_2mm.nii.gz"
    assert image.with_name(image.name + ".sha256").read_text() == f"{sha256(image)}  {image.name}\n"
    assert atlas.sha256 == sha256(site / image.name)
    image.write_bytes(gzip.compress(gzip.decompress(image.read_bytes()), mtime=1))
    with pytest.raises(DataError, match="not the image of atlas 'schaefer200_17'"):
        load_atlas("schaefer200_17")


def test_files_for_an_installed_package_are_kept_in_the_users_cache(family, monkeypatch, tmp_path):
    _, folder, stem = family
    monkeypatch.setattr(places, "INSTALLED", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    stage_atlas("schaefer200_17")
    assert [p.name for p in folder.iterdir()] == ["atlas.yaml"]
    image = f"{stem}_FSLMNI152_2mm.nii.gz"
    kept = {p.name for p in (tmp_path / "cache/bolt/atlases/schaefer").iterdir()}
    assert kept == {image, f"{image}.sha256", f"{stem}.txt"}
    assert load_atlas("schaefer200_17").values.tolist() == [1, 2, 3, 4]


def test_files_of_a_member_are_found_in_the_users_folder(family, monkeypatch):
    site, folder, _ = family
    monkeypatch.setenv("BOLT_ATLAS_DIR", str(site))
    with pytest.warns(UserWarning, match="no checksum of this image is known; make sure.*order.txt is from"):
        stage_atlas("schaefer200_17")
    with pytest.warns(UserWarning):
        assert load_atlas("schaefer200_17").values.tolist() == [1, 2, 3, 4]
    assert [p.name for p in folder.iterdir()] == ["atlas.yaml"]


def test_templateflows_copy_has_its_own_checksum(family, monkeypatch, tmp_path):
    site, _, stem = family
    about = describe_atlas("schaefer200_17").image_in()
    copy = tmp_path / "home" / about.templateflow
    copy.parent.mkdir(parents=True)
    shutil.copy(site / f"{stem}_FSLMNI152_2mm.nii.gz", copy)
    (tmp_path / "tables").mkdir()
    shutil.copy(site / f"{stem}.txt", tmp_path / "tables")
    with pytest.raises(DataError, match="not the image.*not md5 d42e4b0b0e0839428aabd5b3f81210ab"):
        load_atlas("schaefer200_17", atlas_dir=tmp_path / "tables", templateflow_home=tmp_path / "home")
    keys = read_yaml(atlas_files.ATLASES / "schaefer" / "atlas.yaml")
    image = keys["members"]["schaefer200_17"]["images"]["MNI152NLin6Asym"]
    image["templateflow_md5"] = [hashlib.md5(copy.read_bytes()).hexdigest()]
    write_yaml(keys, atlas_files.ATLASES / "schaefer" / "atlas.yaml")
    atlas = load_atlas("schaefer200_17", atlas_dir=tmp_path / "tables", templateflow_home=tmp_path / "home")
    assert atlas.sha256 == sha256(copy)


def test_the_image_of_the_space_is_fetched_and_verified(family, tmp_path):
    """By TemplateFlow's checksum, as there is no other; one that fails it is not kept."""
    site, folder, stem = family
    keys = read_yaml(folder / "atlas.yaml")
    name = "tpl-MNI152NLin2009cAsym_res-02_atlas-Schaefer2018_desc-200Parcels17Networks_dseg.nii.gz"
    shutil.copy(site / f"{stem}_FSLMNI152_2mm.nii.gz", site / name)
    keys["images"]["MNI152NLin2009cAsym"]["url"] = f"{site.as_uri()}/{name}"
    write_yaml(keys, folder / "atlas.yaml")
    with pytest.raises(DataError, match="md5 of tpl-.* is not 3908d659eb62550aece0c95b3f2ae882"):
        stage_atlas("schaefer200_17", space="MNI152NLin2009cAsym")
    assert sorted(p.name for p in folder.iterdir()) == [f"{stem}.txt", "atlas.yaml"]
    right = [hashlib.md5((site / name).read_bytes()).hexdigest()]
    keys["members"]["schaefer200_17"]["images"]["MNI152NLin2009cAsym"]["templateflow_md5"] = right
    write_yaml(keys, folder / "atlas.yaml")
    stage_atlas("schaefer200_17", space="MNI152NLin2009cAsym")
    atlas = load_atlas("schaefer200_17", space="MNI152NLin2009cAsym")
    assert atlas.spaces == ["MNI152NLin2009cAsym"] and atlas.sha256 == sha256(folder / name)


@pytest.mark.parametrize("text", ["1\t7Networks_LH_Vis_1\n2\tBackground\n", "", "404: Not Found\n", "1\n2\n"])
def test_another_table_of_labels_is_refused(family, monkeypatch, tmp_path, text):
    (tmp_path / "Schaefer2018_200Parcels_17Networks_order.txt").write_text(text)
    with pytest.raises(DataError, match="not the publisher's table"):
        load_labels("schaefer200_17", atlas_dir=tmp_path)


def test_all_sizes_of_schaefer_are_known():
    for n in range(100, 1001, 100):
        for suffix, networks in (("", "7"), ("_17", "17")):
            about = describe_atlas(f"schaefer{n}{suffix}")
            image = about.by_space["MNI152NLin6Asym"]
            assert image.file == f"Schaefer2018_{n}Parcels_{networks}Networks_order_FSLMNI152_2mm.nii.gz"
            place = f"/v0.14.3-Update_Yeo2011_Schaefer2018_labelname/.*MNI/{image.file}$"
            assert about.name in known_atlases() and re.search(place, image.url)
            in_templateflow = not (n in (700, 900) or (suffix and n >= 500))  # or it is there in another order
            assert about.spaces == ["MNI152NLin6Asym", "MNI152NLin2009cAsym"][: 1 + in_templateflow]
            for copy in about.by_space.values():
                assert (copy.templateflow is not None) == in_templateflow == len(copy.templateflow_md5)
                assert not in_templateflow or f"_desc-{n}Parcels{networks}Networks_dseg" in copy.templateflow
    assert "schaefer" not in known_atlases()
    with pytest.raises(ConfigError, match="'schaefer' is a family of atlases.*schaefer100, schaefer200"):
        describe_atlas("schaefer")
    with pytest.raises(ConfigError, match="unknown atlas 'schaefer450'.*did you mean"):
        describe_atlas("schaefer450")
