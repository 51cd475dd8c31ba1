"""Spaces of atlases: which image serves for which data, and TemplateFlow's transforms between template spaces.

``tpl-<target>/tpl-<target>_from-<source>_mode-image_xfm.h5`` resamples images in the source space onto the target's
grid, so it maps points of the target to points of the source.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from bolt.atlases.description import FETCH, describe_atlas, known_atlases, md5, templateflow_folder
from bolt.atlases.keys import AtlasFile
from bolt.io.errors import DataError

TEMPLATEFLOW = "https://templateflow.s3.amazonaws.com"
MD5 = {
    ("MNI152NLin6Asym", "MNI152NLin2009cAsym"): "1f9b29f2d5cb898cc97243fe92ee9304",
    ("MNI152NLin2009cAsym", "MNI152NLin6Asym"): "b7130989291ddb85642e19940aaec4c1",
}
"""Checksums that TemplateFlow states of its transforms, by source and target."""


def transform_name(source: str, target: str) -> str:
    """Return the path of a transform in a TemplateFlow home."""
    return f"tpl-{target}/tpl-{target}_from-{source}_mode-image_xfm.h5"


def source_for(spaces: Collection[str], target: str, home: Path | None) -> str | None:
    """Return the first of an atlas's spaces from which its image can be carried over to the target; None if none can.

    Either TemplateFlow is known to have the transform, or it is in the TemplateFlow home.
    """
    root = templateflow_folder(home)
    return next((s for s in spaces if (s, target) in MD5 or (root / transform_name(s, target)).is_file()), None)


def reachable(about: AtlasFile) -> list[str]:
    """Return the other spaces to which an atlas can be carried over by the transforms that TemplateFlow has."""
    return [target for _, target in MD5 if carried_from(about, target, None) is not None]


def carried_from(about: AtlasFile, space: str | None, home: Path | None) -> str | None:
    """Return the space from which an atlas is carried over to that of images; None if it is not (or cannot be)."""
    if space is None or space in about.spaces or about.kind != "image":
        return None
    return source_for(about.spaces, space, home)


def serves(about: AtlasFile, space: str, home: Path | None) -> bool:
    """Return whether an atlas serves for images in a space: as it is, or carried over."""
    return space in about.spaces or carried_from(about, space, home) is not None


def refuse_space(atlas: str, spaces: Collection[str], space: str, home: Path | None) -> DataError:
    """Return the error for images in a space for which an atlas does not serve; the hint names those that do."""
    fitting = [name for name in known_atlases() if serves(describe_atlas(name), space, home)]
    choose = f"Choose an atlas for {space} ({', '.join(fitting)})" if fitting else f"No known atlas is in {space}"
    return DataError(
        f"atlas '{atlas}' is in {' or '.join(spaces)}, but the image is in {space}",
        hint=f"{choose}; or preprocess to {' or '.join(spaces)} "
        f"(fMRIPrep: --output-spaces {next(iter(spaces))}, then 'preprocess: space')",
    )


def find_transform(source: str, target: str, home: Path | None) -> Path:
    """Find a transform in the TemplateFlow home.

    Raises
    ------
    DataError
        It is missing.
    """
    path = templateflow_folder(home) / transform_name(source, target)
    if not path.is_file() or not path.stat().st_size:  # TemplateFlow keeps empty files as placeholders
        raise DataError(
            f"the transform from {source} to {target} is missing",
            where=path,
            hint=f"{FETCH[0].upper()}{FETCH[1:]}, from {TEMPLATEFLOW}",
        )
    return path


def verify_transform(path: Path, source: str, target: str) -> None:
    """Refuse another file than TemplateFlow's, where its checksum is known."""
    expected = MD5.get((source, target))
    if expected is not None and (digest := md5(path)) != expected:
        raise DataError(
            f"not TemplateFlow's transform (md5 {digest}, not {expected})",
            where=path,
            hint=f"Delete the file and {FETCH}",
        )
