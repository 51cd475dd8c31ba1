"""Steps of the anatomical workflow."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import File, TraitedSpec, isdefined, traits

from bolt.config import Registration
from bolt.io.errors import BoltWarning, DataError
from bolt.preprocess import images, registration, tissues
from bolt.preprocess.anatomical import average
from bolt.preprocess.anatomical.extraction import Alignment, align_brain
from bolt.preprocess.anatomical.normalisation import check_transform, normalise
from bolt.preprocess.antspy import ants
from bolt.preprocess.checks import check_t1w
from bolt.preprocess.steps import ImageOutput, Interface, SettingsInput
from bolt.preprocess.tissues import deep_grey

LEVELS = 250
"""Levels of intensity of a T1w on disk, about as many as FreeSurfer keeps: finer than the noise."""


class ConformInput(SettingsInput):
    """Inputs of `Conform`."""

    t1w = File(exists=True, mandatory=True)
    more = traits.List(File(exists=True), desc="further T1w images of the session, to be averaged with it")


class ConformOutput(ImageOutput):
    """Outputs of `Conform`."""

    n_averaged = traits.Int(desc="T1w images that were used")


class Conform(Interface):
    """T1w in RAS order, bias-corrected, at the working resolution (finer images are downsampled); several averaged."""

    input_spec, output_spec = ConformInput, ConformOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Reorient, downsample and bias-correct each T1w, and average them."""
        settings = Registration(**self.inputs.settings)
        first = _conformed(self.inputs.t1w, settings)
        total, n = first.numpy(), 1
        for path in self.inputs.more if isdefined(self.inputs.more) else ():
            try:
                check_t1w(Path(path))
                total, n = total + average.aligned(_conformed(path, settings), first, settings).numpy(), n + 1
            except DataError as error:
                warnings.warn(f"{path}: left out of the average T1w: {error.what}", BoltWarning, stacklevel=1)
        out = folder / "T1w.nii.gz"
        _write_t1w(first.new_image_like(total / n), out)
        return {"out": str(out), "n_averaged": n}


def _conformed(path: str, settings: Registration) -> ants.ANTsImage:
    image, finest = images.read(path), settings.working_resolution
    if finest is not None and min(image.spacing) < finest - 0.05:
        image = images.resample_to_spacing(image, finest)
    return registration.bias_correct(image, settings)


class BrainMaskInput(SettingsInput):
    """Inputs of `BrainMask`."""

    t1w = File(exists=True, mandatory=True)
    template = File(exists=True, mandatory=True)
    template_mask = File(exists=True, mandatory=True)


class BrainMaskOutput(TraitedSpec):
    """Outputs of `BrainMask`."""

    out = File(exists=True)
    affine = File(exists=True)
    forward = File(exists=True)
    inverse = File(exists=True)


class BrainMask(Interface):
    """Brain mask of the T1w, and its alignment with the template."""

    input_spec, output_spec = BrainMaskInput, BrainMaskOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Extract the brain by registration with the template."""
        mask, *transforms = align_brain(
            images.read(self.inputs.t1w),
            images.read(self.inputs.template),
            images.read(self.inputs.template_mask),
            Registration(**self.inputs.settings),
            folder,
        )
        out = folder / "mask.nii.gz"
        images.write(mask, out, "uint8")
        return {"out": str(out)} | dict(zip(("affine", "forward", "inverse"), map(str, transforms), strict=True))


class TissuesInput(SettingsInput):
    """Inputs of `Tissues`."""

    t1w = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)


class TissuesOutput(TraitedSpec):
    """Outputs of `Tissues`."""

    dseg = File(exists=True)
    gm = File(exists=True)
    wm = File(exists=True)
    csf = File(exists=True)


class Tissues(Interface):
    """Labels and probabilities of grey matter, white matter and cerebrospinal fluid."""

    input_spec, output_spec = TissuesInput, TissuesOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Segment the brain and write labels and probabilities."""
        probabilities = tissues.segment(
            images.read(self.inputs.t1w),
            images.read(self.inputs.mask),
            Registration(**self.inputs.settings).tissue_resolution,
        )
        paths = {tissue: str(folder / f"{tissue}.nii.gz") for tissue in (*probabilities, "dseg")}
        for tissue, image in probabilities.items():
            images.write(image, paths[tissue], "uint8", step=1 / 255)
        images.write(tissues.labels(probabilities), paths["dseg"], "uint8")
        return paths


class NormaliseInput(BrainMaskInput):
    """Inputs of `Normalise`."""

    mask = File(exists=True, mandatory=True)
    affine = File(exists=True, mandatory=True)
    forward = File(exists=True, mandatory=True)
    inverse = File(exists=True, mandatory=True)


class NormaliseOutput(TraitedSpec):
    """Outputs of `Normalise`."""

    forward = File(exists=True)
    inverse = File(exists=True)
    warped = File(exists=True)
    deep = File(exists=True, desc="mask of deep grey matter on the T1w grid")


class Normalise(Interface):
    """Normalisation of the T1w brain to the template's, refined from the alignment."""

    input_spec, output_spec = NormaliseInput, NormaliseOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Register the brains, refuse an implausible result, warp the T1w, and carry deep grey matter back."""
        t1w, mask = images.read(self.inputs.t1w), images.read(self.inputs.mask)
        template, template_mask = images.read(self.inputs.template), images.read(self.inputs.template_mask)
        settings = Registration(**self.inputs.settings)
        alignment = Alignment(mask, *(Path(getattr(self.inputs, port)) for port in ("affine", "forward", "inverse")))
        forward, inverse = normalise(t1w * mask, template * template_mask, alignment, settings, folder)
        check_transform([forward], template_mask, mask)
        warped = folder / "warped.nii.gz"
        _write_t1w(registration.warp(template, t1w, [forward]), warped, images.MNI)
        deep = folder / "deep.nii.gz"
        images.write(deep_grey(t1w, inverse), deep, "uint8")
        return {"forward": str(forward), "inverse": str(inverse), "warped": str(warped), "deep": str(deep)}


def _write_t1w(image: ants.ANTsImage, path: Path, code: int = images.SCANNER) -> None:
    """Write a T1w in `LEVELS` steps up to its `MAX_QUANTILE`: a few brighter voxels do not coarsen the others."""
    data = image.numpy()
    step = float(np.quantile(data[data > 0], registration.MAX_QUANTILE)) / LEVELS
    images.write(image, path, "uint16", code, step)
