"""Tables for readers: rounded numbers, Markdown and LaTeX, and the tables of experiments."""
