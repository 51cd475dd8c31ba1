"""Parts of the explanation page, and the questions that decide how far an explanation can be trusted."""
