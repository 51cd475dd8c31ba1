"""Names of the files that preprocessing makes; apart, because asking for a name should import nothing."""

from __future__ import annotations


def anatomical_names(prefix: str, space: str) -> dict[str, str]:
    """File names of the anatomical outputs, by the workflow's output.

    Parameters
    ----------
    prefix : str
        ``sub-01_`` or ``sub-01_ses-a_``.
    space : str
        The template's name.
    """
    return {
        "t1w": f"{prefix}desc-preproc_T1w.nii.gz",
        "mask": f"{prefix}desc-brain_mask.nii.gz",
        "dseg": f"{prefix}dseg.nii.gz",
        **{tissue: f"{prefix}label-{tissue.upper()}_probseg.nii.gz" for tissue in ("gm", "wm", "csf")},
        "forward": f"{prefix}from-T1w_to-{space}_mode-image_xfm.h5",
        "inverse": f"{prefix}from-{space}_to-T1w_mode-image_xfm.h5",
        "warped": f"{prefix}space-{space}_desc-preproc_T1w.nii.gz",
    }
