"""Figures; each function draws numbers computed elsewhere and saves PNG, SVG and PDF."""
