"""`python -m algocc` is the command `algocc`."""

import sys

from algocc.cli import main

if __name__ == "__main__":
    sys.exit(main())
