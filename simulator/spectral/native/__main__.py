"""Builds the native kernels ahead of the first run. The exit code is always 0: XLA's path needs no
compiler."""

import os
import sys

from simulator.spectral.native.build import Unavailable, library

try:
    print(f"native transforms: {library(os.environ)}", file=sys.stderr)
except Unavailable as reason:
    print(f"transforms will run on XLA's path, which takes longer: {reason}", file=sys.stderr)
