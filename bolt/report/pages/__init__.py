"""Pages of the report, and the blocks (`bolt.report.html`) they consist of: none where their files are missing."""
