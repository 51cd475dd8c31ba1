"""Steps of the functional workflow."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from nipype.interfaces.base import BaseInterfaceInputSpec, File, TraitedSpec, isdefined, traits

from bolt.config import Registration
from bolt.io.errors import BoltWarning, DataError
from bolt.io.streams import VolumeWriter, iter_volumes
from bolt.io.volumes import BoldInfo, check_bold, check_image
from bolt.preprocess import images, registration
from bolt.preprocess.checks import MIN_VOLUMES
from bolt.preprocess.functional import boundary, confounds, motion, resample, sbref, timing
from bolt.preprocess.steps import ImageOutput, Interface, SettingsInput

REFERENCE_VOLUMES = 15
"""The motion reference is the median of this many volumes, spread over the scan."""
REFERENCE_LEVELS, TSNR_STEP = 20_000, 0.01
"""How finely the mean image (levels up to its maximum) and tSNR are stored: whole numbers take half the space."""


class ReferenceInput(SettingsInput):
    """Inputs of `Reference`."""

    bold = File(exists=True, mandatory=True)
    tr = traits.Float(mandatory=True)
    steady_state = traits.Either("auto", traits.Int, default="auto", usedefault=True)


class ReferenceOutput(TraitedSpec):
    """Outputs of `Reference`."""

    reference = File(exists=True)
    mask = File(exists=True)
    unsteady = traits.Int(desc="non-steady-state volumes at the start")


class Reference(Interface):
    """Robust BOLD reference of steady-state volumes in native voxels, and its brain mask."""

    input_spec, output_spec = ReferenceInput, ReferenceOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Count the non-steady-state volumes and build the reference from the others."""
        image = check_image(self.inputs.bold)
        affine, n_volumes = image.affine, image.shape[3]
        unsteady = self.inputs.steady_state
        if unsteady == "auto":
            unsteady = timing.count_unsteady(self.inputs.bold, n_volumes, self.inputs.tr)
        elif n_volumes - unsteady < MIN_VOLUMES:
            raise DataError(
                f"'preprocess: steady_state' leaves {max(n_volumes - unsteady, 0)} of {n_volumes} volumes; at least "
                f"{MIN_VOLUMES} are needed",
                where=self.inputs.bold,
                hint="Set a smaller number, or auto",
            )
        n_steady = n_volumes - unsteady
        chosen = set(unsteady + np.linspace(0, n_steady - 1, min(REFERENCE_VOLUMES, n_steady)).astype(int))
        volumes = [volume for t, volume in enumerate(iter_volumes(self.inputs.bold)) if t in chosen]
        reference, mask = motion.motion_reference(volumes, affine, Registration(**self.inputs.settings))
        paths = {"reference": str(folder / "boldref.nii.gz"), "mask": str(folder / "mask.nii.gz")}
        images.save(reference, affine, paths["reference"])
        images.save(mask, affine, paths["mask"], "uint8")
        return {**paths, "unsteady": unsteady}


class HeadMotionInput(SettingsInput):
    """Inputs of `HeadMotion`."""

    bold = File(exists=True, mandatory=True)
    reference = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)


class HeadMotion(Interface):
    """Head position in every volume."""

    input_spec, output_spec = HeadMotionInput, ImageOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Register every volume to the reference and write the table of head positions."""
        reference, affine = images.load(self.inputs.reference)
        mask = images.load(self.inputs.mask)[0] > 0
        estimator = motion.HeadMotion(reference, mask, affine, Registration(**self.inputs.settings))
        positions = np.stack(list(estimator.positions(iter_volumes(self.inputs.bold))))
        out = folder / "motion.tsv"
        confounds.write_motion(positions, estimator.centre, out)
        return {"out": str(out)}


class AlignSBRefInput(SettingsInput):
    """Inputs of `AlignSBRef`."""

    sbref = File(exists=True, mandatory=True)
    reference = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)


class AlignSBRefOutput(ImageOutput):
    """Outputs of `AlignSBRef`."""

    numbers = traits.Dict(desc="for desc-quality.json")


class AlignSBRef(Interface):
    """Single-band reference in the place of the scan's reference; that reference, if it cannot be used."""

    input_spec, output_spec = AlignSBRefInput, AlignSBRefOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Align the SBRef; warn if it cannot be used."""
        reference, mask = images.read(self.inputs.reference), images.read(self.inputs.mask)
        try:
            aligned, shift = sbref.align_sbref(self.inputs.sbref, reference, mask, Registration(**self.inputs.settings))
        except DataError as error:
            problem = f"{self.inputs.sbref}: not used for the coregistration: {error.what}"
            warnings.warn(problem, BoltWarning, stacklevel=1)
            return {"out": self.inputs.reference, "numbers": {"sbref_refusal": error.what}}
        out = folder / "sbref.nii.gz"
        images.write(aligned, out)
        return {"out": str(out), "numbers": {"sbref_shift": shift}}


class CoregisterInput(SettingsInput):
    """Inputs of `Coregister`."""

    reference = File(exists=True, mandatory=True)
    mask = File(exists=True, mandatory=True)
    t1w = File(exists=True, mandatory=True)
    t1w_mask = File(exists=True, mandatory=True)
    gm = File(exists=True, mandatory=True, desc="grey-matter probability on the T1w grid")
    wm = File(exists=True, mandatory=True)
    deep = File(exists=True, mandatory=True, desc="mask of deep grey matter")


class CoregisterOutput(ImageOutput):
    """Outputs of `Coregister`."""

    numbers = traits.Dict(desc="of the two fits, for desc-quality.json")
    corrected = File(exists=True, desc="bias-corrected reference")


class Coregister(Interface):
    """Coregistration of the BOLD reference with the T1w."""

    input_spec, output_spec = CoregisterInput, CoregisterOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Register the bias-corrected reference to the T1w, by intensity, then by the boundary; write the transform."""
        settings = Registration(**self.inputs.settings)
        reference = registration.bias_correct(images.read(self.inputs.reference), settings)
        corrected = folder / "corrected.nii.gz"
        images.write(reference, corrected)
        mask, t1w, t1w_mask = (images.read(getattr(self.inputs, port)) for port in ("mask", "t1w", "t1w_mask"))
        start = registration.coregister(reference, mask, t1w, t1w_mask, settings)
        edge = boundary.cortical_boundary(*(images.read(getattr(self.inputs, port)) for port in ("wm", "gm", "deep")))
        matrix, numbers = boundary.refine(reference, mask, t1w, t1w_mask, edge, start)
        out = folder / "bold_to_t1w.txt"
        images.write_matrix(matrix, out)
        return {"out": str(out), "numbers": numbers, "corrected": str(corrected)}


class ResampleInput(BaseInterfaceInputSpec):
    """Inputs of `Resample`."""

    bold = File(exists=True, mandatory=True)
    motion = File(exists=True, mandatory=True)
    bold_to_t1w = File(exists=True, mandatory=True)
    t1w_to_space = File(exists=True, mandatory=True)
    t1w_mask = File(exists=True, mandatory=True)
    wm = File(exists=True, desc="white-matter probability on the T1w grid")
    csf = File(exists=True)
    deep = File(exists=True, desc="mask of deep grey matter, which is not noise")
    template = File(exists=True, mandatory=True)
    resolution = traits.Float(mandatory=True)
    tr = traits.Float(mandatory=True)
    unsteady = traits.Int(0, usedefault=True)
    slice_timing = traits.Bool(True, usedefault=True)
    output = traits.Enum("template", "native", usedefault=True)


class ResampleOutput(TraitedSpec):
    """Outputs of `Resample`."""

    bold = File(exists=True)
    mask = File(exists=True)
    reference = File(exists=True)
    tsnr = File(exists=True)
    confounds = File(exists=True)


class Resample(Interface):
    """BOLD on the output grid in one interpolation, with mask, mean, tSNR and confounds in the same pass.

    The output is zero away from the brain and outside the acquired field of view. In native space no 4D image is
    written: head motion is corrected only for the mean, tSNR and confounds.
    """

    input_spec, output_spec = ResampleInput, ResampleOutput

    def work(self, folder: Path) -> dict[str, Any]:
        """Resample volume by volume and write all outputs."""
        inputs = self.inputs
        info = check_bold(inputs.bold, inputs.tr)
        positions = confounds.read_motion(inputs.motion)
        target = self._target(info, folder)
        brain = target.resample_t1w(images.read(inputs.t1w_mask))
        area = self._acquired_area(target, brain, positions, info)
        points, inside = target.points[area], brain[area] > 0.5
        statistics = confounds.BrainStatistics(int(inside.sum()), inputs.unsteady)
        tissues = confounds.TissueSignals(self._tissues(target, area, inside, max(info.voxel_sizes)))
        slices = timing.read_slice_times(inputs.bold, info.shape, info.tr) if inputs.slice_timing else None
        volumes = timing.slice_timed(iter_volumes(inputs.bold), slices, info.tr, inputs.unsteady)
        total = np.zeros(len(points))
        names = {"mask": "mask", "reference": "boldref", "tsnr": "tsnr"}
        paths = {key: str(folder / f"{name}.nii.gz") for key, name in names.items()}
        with ExitStack() as stack:
            writer = None
            if inputs.output == "template":
                paths["bold"] = str(folder / "bold.nii.gz")
                writer = stack.enter_context(
                    VolumeWriter(paths["bold"], target.affine, target.shape, info.tr, code=target.code)
                )
            for t, values in enumerate(resample.resample(volumes, info.affine, positions, points)):
                statistics.add(values[inside])
                tissues.add(values)
                if t >= inputs.unsteady:
                    total += values
                if writer is not None:
                    writer.append(_volume(values, area))
        mean = total / (len(positions) - inputs.unsteady)
        images.save(_volume(inside, area), target.affine, paths["mask"], "uint8", code=target.code)
        step = float(np.abs(mean).max()) / REFERENCE_LEVELS
        images.save(_volume(mean, area), target.affine, paths["reference"], "int32", target.code, step or 1.0)
        tsnr = _volume(statistics.tsnr, _volume(inside, area) > 0)
        images.save(tsnr, target.affine, paths["tsnr"], "int32", target.code, TSNR_STEP)
        confounds.write_confounds(inputs.motion, statistics, tissues, info.tr, folder / "confounds.tsv")
        return {**paths, "confounds": str(folder / "confounds.tsv")}

    def _target(self, info: BoldInfo, folder: Path) -> resample.Target:
        inputs = self.inputs
        if inputs.output == "native":
            return resample.native_target(info.shape, info.affine, inputs.bold_to_t1w, folder)
        return resample.template_target(inputs.template, inputs.resolution, inputs.t1w_to_space, inputs.bold_to_t1w)

    def _acquired_area(
        self, target: resample.Target, brain: np.ndarray, positions: np.ndarray, info: BoldInfo
    ) -> np.ndarray:
        """Return the (X, Y, Z) bool area around the brain that nearly all steady-state volumes have acquired."""
        area = resample.output_area(brain > 0.5, target.affine)
        steady = positions[self.inputs.unsteady :]  # volumes that are dropped may lack anything
        area[area] = resample.field_mask(target.points[area], steady, info.shape, info.affine)
        if not (brain[area] > 0.5).any():
            worst, share = resample.worst_volume(target.points[brain > 0.5], steady, info.shape, info.affine)
            raise DataError(
                f"no brain voxel was acquired in {resample.FIELD_SHARE:.0%} of the volumes; volume "
                f"{self.inputs.unsteady + worst} (counted from 0) alone lacks {share:.0%} of the brain",
                where=self.inputs.bold,
                hint="Inspect the scan, its T1w and their coregistration: they may show different heads",
            )
        return area

    def _tissues(
        self, target: resample.Target, area: np.ndarray, inside: np.ndarray, voxel: float
    ) -> dict[str, np.ndarray]:
        """Select pure white-matter and pure CSF voxels within the `area` of the target."""
        masks = {}
        for name, path in (("white_matter", self.inputs.wm), ("csf", self.inputs.csf)):
            if isdefined(path):
                image = images.read(path)
                if name == "white_matter" and isdefined(self.inputs.deep):
                    image = image * (1 - images.read(self.inputs.deep))
                share = image.new_image_like(confounds.voxel_share(image.numpy(), np.asarray(image.spacing), voxel))
                masks[name] = confounds.purest(np.where(inside, target.resample_t1w(share)[area], 0))
        return masks


def _volume(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Put values back into an (X, Y, Z) volume, zero elsewhere."""
    volume = np.zeros(where.shape, dtype=np.float32)
    volume[where] = values
    return volume
