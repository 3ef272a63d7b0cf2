#!/usr/bin/env python
"""Makes the pictures of the pages by the commands that the pages print.

    python scripts/gallery.py                        every picture
    python scripts/gallery.py soliton_merger mri     these only
    python scripts/gallery.py --list                 the pictures and their commands

The commands run in a working folder. A command that several pictures share runs once, and a run that
is finished there is not repeated. scripts/gallery.yaml lists the pictures, scripts/measured/gallery.csv
the commit and the date of each."""

import argparse
import csv
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
EQUATIONS = "simulator/docs/assets/equations"
RECORD = "scripts/measured/gallery.csv"


@dataclass(frozen=True)
class Picture:
    """A picture of the repository, the commands that make it, and the file that they write."""

    path: Path
    commands: tuple[str, ...]
    file: str

    @property
    def name(self) -> str:
        return self.path.stem


def pictures() -> list[Picture]:
    table = yaml.safe_load((ROOT / "scripts" / "gallery.yaml").read_text())
    listed = [
        Picture(Path(path), tuple(entry["commands"]), entry["file"])
        for path, entry in table["pictures"].items()
    ]
    equations = table["equations"]
    for name, field in equations["fields"].items():
        commands = tuple(command.replace("NAME", name) for command in equations["commands"])
        file = f"outputs/{name}/plots/slices_{field}.png"
        listed.append(Picture(Path(EQUATIONS, f"{name}.png"), commands, file))
    return listed


def run(command: str, folder: Path) -> None:
    """The output of a command goes to `commands.log`. Raises CalledProcessError if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / "commands.log").open("a") as log:
        print("$", command, file=log, flush=True)
        subprocess.run(
            command, cwd=folder, shell=True, check=True, stdout=log, stderr=log,
            env={**os.environ, "PATH": path},
        )  # fmt: skip


def commit() -> str:
    """The commit of the checkout, with a plus if the program was changed since."""
    git = ["git", "-C", str(ROOT)]
    head = [*git, "rev-parse", "--short=12", "HEAD"]
    name = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py", "*.yaml"]).returncode
    return f"{name}+" if changed else name


def record(picture: Picture, destination: Path) -> None:
    """Replaces the line of the picture in the table of commits."""
    file = destination / RECORD
    lines = {}
    if file.exists():
        with file.open(newline="") as stream:
            lines = {line["picture"]: line for line in csv.DictReader(stream)}
    today = datetime.now(UTC).date().isoformat()
    lines[str(picture.path)] = {"picture": str(picture.path), "commit": commit(), "date": today}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        table = csv.DictWriter(stream, ["picture", "commit", "date"], lineterminator="\n")
        table.writeheader()
        table.writerows(lines[name] for name in sorted(lines))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="names of pictures; see --list")
    parser.add_argument("--list", action="store_true", help="print the pictures and run nothing")
    where = "working folder (default: %(default)s)"
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, default=Path("outputs/made"), help=where
    )
    where = "checkout that receives the pictures (default: the script's own)"
    parser.add_argument("--destination", metavar="DIR", type=Path, default=ROOT, help=where)
    args = parser.parse_args()
    known = pictures()
    if unknown := set(args.names) - {picture.name for picture in known}:
        parser.error(f"unknown picture {min(unknown)!r}; --list prints the names")
    chosen = [picture for picture in known if picture.name in args.names or not args.names]
    if args.list:
        print("\n".join(f"{p.name:26}{'; '.join(p.commands)}" for p in chosen))
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    for part in ("configs", "scripts"):
        if not (args.folder / part).exists():
            (args.folder / part).symlink_to(ROOT / part)
    ran: set[str] = set()
    for picture in chosen:
        print(f"{picture.name} ...", flush=True)
        for command in picture.commands:
            if command not in ran:
                run(command, args.folder)
                ran.add(command)
        (args.destination / picture.path).parent.mkdir(parents=True, exist_ok=True)
        made = args.folder / picture.file
        if not made.exists():
            there = ", ".join(sorted(path.name for path in made.parent.glob("*.png")))
            sys.exit(f"{picture.name}: {made} was not written; there are: {there}")
        shutil.copy(made, args.destination / picture.path)
        record(picture, args.destination)
    return 0


if __name__ == "__main__":
    sys.exit(main())
