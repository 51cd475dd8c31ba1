"""Everything written about one experiment: tables for machines and people, and its figure."""
