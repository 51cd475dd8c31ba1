"""The command line: `bolt <command>`."""
