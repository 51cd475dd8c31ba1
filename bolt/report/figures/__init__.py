"""Figures; functions draw numbers computed elsewhere and save `out`, a PNG, with SVG and PDF beside it."""
