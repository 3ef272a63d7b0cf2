"""`python -m simulator` is the console command `simulator`."""

import sys

from simulator.cli import main

if __name__ == "__main__":
    sys.exit(main())
