"""Steps of the functional workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, traits

from bolt.config import Registration
from bolt.errors import DataError
from bolt.preprocess import confounds, images, motion, registration, resample
from bolt.preprocess.steps import ImageOutput, Interface, SettingsInput
from bolt.volumes import VolumeWriter, check_bold, check_image, iter_volumes

REFERENCE_VOLUMES = 15
"""The motion reference is the median of so many volumes, spread over the scan."""


class ReferenceInput(SettingsInput):
    bold = File(exists=True, mandatory=True)


class ReferenceOutput(TraitedSpec):
    reference = File(exists=True)
    mask = File(exists=True)


class Reference(Interface):
    """Robust BOLD reference in the scanner's own voxels, and its brain mask."""

    input_spec, output_spec = ReferenceInput, ReferenceOutput

    def work(self, folder: Path) -> dict[str, Any]:
        image = check_image(self.inputs.bold)
        affine, n_volumes = image.affine, image.shape[3]
        chosen = set(np.linspace(0, n_volumes - 1, min(REFERENCE_VOLUMES, n_volumes)).astype(int))
        volumes = [volume for t, volume in enumerate(iter_volumes(self.inputs.bold)) if t in chosen]
        reference, mask = motion.motion_reference(volumes, affine, Registration(**self.inputs.settings))
        paths = {"reference": str(folder / "boldref.nii.gz"), "mask": str(folder / "mask.nii.gz")}
        images.save(reference, affine, paths["reference"])
        images.save(mask, affine, paths["mask"], "uint8")
        return paths


class HeadMotionInput(SettingsInput):
    bold = File(exists=True, mandatory=True)
    reference = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)


class HeadMotion(Interface):
    """Head position in every volume."""

    input_spec, output_spec = HeadMotionInput, ImageOutput

    def work(self, folder: Path) -> dict[str, Any]:
        reference, affine = images.load(self.inputs.reference)
        mask = images.load(self.inputs.mask)[0] > 0
        estimator = motion.HeadMotion(reference, mask, affine, Registration(**self.inputs.settings))
        positions = np.stack(list(estimator.positions(iter_volumes(self.inputs.bold))))
        out = folder / "motion.tsv"
        confounds.write_motion(positions, estimator.centre, out)
        return {"out": str(out)}


class CoregisterInput(SettingsInput):
    reference = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)
    t1w = File(exists=True, mandatory=True)
    t1w_mask = File(exists=True, mandatory=True)


class CoregisterOutput(ImageOutput):
    dice = traits.Float()


class Coregister(Interface):
    """BOLD reference to T1w."""

    input_spec, output_spec = CoregisterInput, CoregisterOutput

    def work(self, folder: Path) -> dict[str, Any]:
        settings = Registration(**self.inputs.settings)
        matrix, dice = registration.coregister(
            registration.bias_correct(images.read(self.inputs.reference), settings, shrink=2),
            images.read(self.inputs.mask),
            images.read(self.inputs.t1w),
            images.read(self.inputs.t1w_mask),
            settings,
        )
        out = folder / "bold_to_t1w.txt"
        images.write_matrix(matrix, out)
        return {"out": str(out), "dice": dice}


class ResampleInput(BaseInterfaceInputSpec):
    bold = File(exists=True, mandatory=True)
    motion = File(exists=True, mandatory=True)
    bold_to_t1w = File(exists=True, mandatory=True)
    t1w_to_space = File(exists=True, mandatory=True)
    t1w_mask = File(exists=True, mandatory=True)
    template = File(exists=True, mandatory=True)
    resolution = traits.Float(mandatory=True)
    tr = traits.Float(mandatory=True)


class ResampleOutput(TraitedSpec):
    bold = File(exists=True)
    mask = File(exists=True)
    reference = File(exists=True)
    tsnr = File(exists=True)
    confounds = File(exists=True)


class Resample(Interface):
    """BOLD to the output grid in one interpolation; mask, mean, tSNR and confounds on the way.

    Around the brain and beyond what was acquired, the output is zero.
    """

    input_spec, output_spec = ResampleInput, ResampleOutput

    def work(self, folder: Path) -> dict[str, Any]:
        given = self.inputs
        info = check_bold(given.bold, given.tr)
        positions = confounds.read_motion(given.motion)
        shape, affine = images.grid(given.template, given.resolution)
        brain = registration.warp(
            images.to_ants(np.zeros(shape), affine), images.read(given.t1w_mask), [given.t1w_to_space]
        ).numpy()
        area = resample.output_area(brain > 0.5, affine)
        points = resample.places_of_grid(shape, affine, [given.t1w_to_space, given.bold_to_t1w])
        area[area] = resample.field_mask(points[area], positions, info.shape, info.affine)
        points, inside = points[area], brain[area] > 0.5
        if not inside.any():
            raise DataError(
                "no voxel of the brain was acquired in every volume",
                where=given.bold,
                mend="Look at the registration pictures: T1w and BOLD do not show the same head",
            )
        statistics = confounds.BrainStatistics(int(inside.sum()))
        total = np.zeros(len(points))
        names = {"bold": "bold", "mask": "mask", "reference": "boldref", "tsnr": "tsnr"}
        paths = {key: str(folder / f"{name}.nii.gz") for key, name in names.items()}
        with VolumeWriter(paths["bold"], affine, shape, info.tr) as writer:
            for values in resample.resample(iter_volumes(given.bold), info.affine, positions, points):
                statistics.add(values[inside])
                total += values
                writer.append(_volume(values, area))
        images.save(_volume(inside, area), affine, paths["mask"], "uint8", code=images.MNI)
        images.save(_volume(total / len(positions), area), affine, paths["reference"], code=images.MNI)
        images.save(_volume(statistics.tsnr, _volume(inside, area) > 0), affine, paths["tsnr"], code=images.MNI)
        confounds.write_confounds(given.motion, statistics, folder / "confounds.tsv")
        return {**paths, "confounds": str(folder / "confounds.tsv")}


def _volume(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Put values back into an (X, Y, Z) volume, zero elsewhere."""
    volume = np.zeros(where.shape, dtype=np.float32)
    volume[where] = values
    return volume
