"""Files, tables, NIfTI images and errors: what every other room builds on."""
