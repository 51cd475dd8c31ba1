"""`python -m bolt`."""

import sys

from bolt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
