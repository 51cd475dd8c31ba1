"""Preprocessing of raw MRI: T1w and BOLD images to template space (or native voxels), with confounds and quality."""
