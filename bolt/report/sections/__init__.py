"""Sections of the report; each returns blocks (`bolt.report.html`), or none if its files are missing."""
