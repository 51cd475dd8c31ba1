"""Steps of the anatomical workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nipype.interfaces.base import File, TraitedSpec

from bolt.config import Registration
from bolt.preprocess import images, registration
from bolt.preprocess.anatomical import tissues
from bolt.preprocess.anatomical.extraction import brain_mask
from bolt.preprocess.anatomical.normalisation import check_transform, normalise
from bolt.preprocess.steps import ImageOutput, Interface, SettingsInput


class ConformInput(SettingsInput):
    t1w = File(exists=True, mandatory=True)


class Conform(Interface):
    """T1w in RAS order at the working resolution (finer ones are reduced), bias field taken out."""

    input_spec, output_spec = ConformInput, ImageOutput

    def work(self, folder: Path) -> dict[str, Any]:
        settings = Registration(**self.inputs.settings)
        image = images.read(self.inputs.t1w)
        if min(image.spacing) < settings.working_resolution - 0.05:
            image = images.resample_to_spacing(image, settings.working_resolution)
        out = folder / "T1w.nii.gz"
        images.write(registration.bias_correct(image, settings), out)
        return {"out": str(out)}


class BrainMaskInput(SettingsInput):
    t1w = File(exists=True, mandatory=True)
    template = File(exists=True, mandatory=True)
    template_mask = File(exists=True, mandatory=True)


class BrainMask(Interface):
    """Brain extraction by the template's mask, in two steps."""

    input_spec, output_spec = BrainMaskInput, ImageOutput

    def work(self, folder: Path) -> dict[str, Any]:
        mask = brain_mask(
            images.read(self.inputs.t1w),
            images.read(self.inputs.template),
            images.read(self.inputs.template_mask),
            Registration(**self.inputs.settings),
        )
        out = folder / "mask.nii.gz"
        images.write(mask, out, "uint8")
        return {"out": str(out)}


class TissuesInput(SettingsInput):
    t1w = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)


class TissuesOutput(TraitedSpec):
    dseg = File(exists=True)
    gm = File(exists=True)
    wm = File(exists=True)
    csf = File(exists=True)


class Tissues(Interface):
    """Grey matter, white matter, fluid: labels and probabilities."""

    input_spec, output_spec = TissuesInput, TissuesOutput

    def work(self, folder: Path) -> dict[str, Any]:
        found = tissues.segment(
            images.read(self.inputs.t1w),
            images.read(self.inputs.mask),
            Registration(**self.inputs.settings).tissue_resolution,
        )
        made = {tissue: str(folder / f"{tissue}.nii.gz") for tissue in found}
        for tissue, image in found.items():
            images.write(image, made[tissue])
        made["dseg"] = str(folder / "dseg.nii.gz")
        images.write(tissues.labels(found), made["dseg"], "uint8")
        return made


class NormaliseInput(BrainMaskInput):
    mask = File(exists=True, mandatory=True)


class NormaliseOutput(TraitedSpec):
    forward = File(exists=True)
    inverse = File(exists=True)
    warped = File(exists=True)


class Normalise(Interface):
    """T1w to template, brain to brain; a result that cannot be right is an error."""

    input_spec, output_spec = NormaliseInput, NormaliseOutput

    def work(self, folder: Path) -> dict[str, Any]:
        t1w, mask = images.read(self.inputs.t1w), images.read(self.inputs.mask)
        template, template_mask = images.read(self.inputs.template), images.read(self.inputs.template_mask)
        settings = Registration(**self.inputs.settings)
        forward, inverse = normalise(t1w * mask, template * template_mask, settings, folder)
        check_transform([forward], template_mask, mask)
        warped = folder / "warped.nii.gz"
        images.write(registration.warp(template, t1w, [forward]), warped, code=images.MNI)
        return {"forward": str(forward), "inverse": str(inverse), "warped": str(warped)}
