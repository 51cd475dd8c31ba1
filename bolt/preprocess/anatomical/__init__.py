"""T1w preprocessing: brain extraction, tissue segmentation, and normalisation to the template."""
