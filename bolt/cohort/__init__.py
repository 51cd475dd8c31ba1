"""The cohort: exclusions, quality cut-offs, confounds of the label, covariates, and harmonisation of sites."""
