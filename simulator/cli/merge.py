"""`simulator merge`: merges the shards of a snapshot into one ordinary HDF5 file."""

import argparse
from pathlib import Path

_EPILOG = """example: simulator merge outputs/taylor_green/snapshots/00000010 taylor_green_10.h5"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "merge",
        help="write a snapshot as one ordinary HDF5 file",
        description="Verify a snapshot and write it as one ordinary HDF5 file, in bounded memory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("snapshot", type=Path, help="a snapshot or checkpoint folder, or its index file")
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Merge; returns the exit code."""
    from simulator.archive.merge import merge

    size = merge(args.snapshot, args.out, overwrite=args.overwrite)
    print(f"{args.out}: {size} bytes; h5dump -n {args.out} lists it")
    return 0
