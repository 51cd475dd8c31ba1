"""BOLD preprocessing: head motion, slice timing, resampling, and confounds."""
