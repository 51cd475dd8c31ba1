"""Results for readers: the report, the explanation and quality pages, and the tables of experiments."""
