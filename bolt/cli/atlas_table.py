"""The list of atlases: ROIs, spaces, and where each label image is or how to get it."""

from __future__ import annotations

from argparse import Namespace

from bolt.atlases.description import (
    ATLAS_DIR,
    FETCH,
    AtlasFile,
    AtlasImage,
    atlas_folder,
    describe_atlas,
    find_image,
    find_labels,
    known_atlases,
    reachable,
)
from bolt.atlases.labels import count_rois
from bolt.config import Paths, load_config
from bolt.io.errors import DataError, list_entry


def show_atlases(options: Namespace) -> None:
    """Print every atlas: its ROIs and spaces, what it is, and where its image is or how to get it.

    Parameters
    ----------
    options : Namespace
        ``config``: configuration whose ``paths`` are searched for images, or None.
    """
    paths = load_config(options.config).paths if options.config else Paths()
    for name in known_atlases():
        about = describe_atlas(name)
        n_rois = count_rois(name, atlas_dir=paths.atlas_dir)
        spaces = ", ".join([*about.spaces, *(f"{space} (carried over)" for space in reachable(about))])
        facts = f"{n_rois} ROIs; {spaces}" if n_rois else spaces
        print(list_entry(f"{name}: {facts}", about.description.strip(), f"Image: {_image(name, about, paths)}"))


def _image(name: str, about: AtlasFile, paths: Paths) -> str:
    """Return where the image is, or how to get it."""
    if about.kind == "spheres":
        return "drawn from coordinates"
    folder = atlas_folder(name)
    try:
        find_labels(about, folder, paths.atlas_dir)
    except DataError:
        return _not_found(about, about.image_in())
    places: dict[str, list[str]] = {}
    for space in about.spaces:
        try:
            place = str(find_image(about, folder, paths.atlas_dir, paths.templateflow_home, space))
        except DataError:
            place = _not_found(about, about.image_in(space))
        places.setdefault(place, []).append(space)
    return "; ".join(f"{', '.join(spaces)}: {place}" if len(places) > 1 else place for place, spaces in places.items())


def _not_found(about: AtlasFile, image: AtlasImage) -> str:
    download = f"{FETCH}, or " if image.url else ""
    return f"not found: {download}put {image.file} into the folder that {ATLAS_DIR} names (from {about.source})"


def describe_atlas_of(options: Namespace) -> None:
    """Write the folder of an atlas whose ROI names are in a file.

    Parameters
    ----------
    options : Namespace
        ``file``: table of labels, or series whose columns have names; ``out``: the new folder.
    """
    from bolt.atlases.labels import describe_names

    n_rois = describe_names(options.file, options.out)
    print(f"{options.out}: {n_rois} ROIs; use it with 'atlases: [{options.out}]'")
