"""Runs tests of a copy of the sources from which plugins have been taken off, as if they had never
been there: neither their folders nor their entry points.

    python scripts/without_plugins.py core [pytest arguments]    # the tests of the core, no plugin
    python scripts/without_plugins.py NAME [pytest arguments]    # the tests of a plugin, which has
                                                                 # only the plugins that it needs

`./scripts/test --core` and `./scripts/test --plugin NAME` call it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = sorted(path.parent.name for path in (ROOT / "simulator/plugins").glob("*/__init__.py"))
NEEDS = {"cosmology": ["gravity"], "assimilation": ["gradients"]}
"""The other plugins that a plugin cannot do without, as in the table of developers.md."""

NOT_OF_THE_CORE = ("plugins", "docs", "scripts")
"""Folders of tests that need plugins: their own, and those of pages and scripts, which use every
part of the program."""


def copy_without(absent: list[str], place: Path) -> None:
    """Copies the sources into `place`, without the plugins `absent` and their entry points."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    gone = [f"{folder}/plugins/{name}/" for folder in ("simulator", "tests") for name in absent]
    for file in filter(None, listed.stdout.split("\0")):
        if not file.startswith(tuple(gone)) and (ROOT / file).is_file():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, place / file)
    project = place / "pyproject.toml"
    entries = "|".join(absent)
    text = re.sub(
        rf'^\S+ = "simulator\.plugins\.({entries})\b.*\n',
        "",
        project.read_text(),
        flags=re.MULTILINE,
    )
    project.write_text(text)
    git = ["git", "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a copy without plugins"]):
        subprocess.run([*git, *words], cwd=place, check=True)
    # The metadata of the copy, which come first on the path, hide those of the installed package.
    subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "egg_info"],
        cwd=place,
        env={**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": version("simulator")},
        capture_output=True,
        check=True,
    )


def main() -> int:
    kept, *arguments = sys.argv[1:] or [""]
    if kept not in ("core", *PLUGINS):
        print(f"core, or a plugin, is needed: {', '.join(PLUGINS)}", file=sys.stderr)
        return 2
    entries = sorted((ROOT / "tests").iterdir())
    names = [e.name for e in entries if e.is_dir() or e.match("test_*.py")]
    of_core = [f"tests/{name}" for name in names if name not in (*NOT_OF_THE_CORE, "__pycache__")]
    tests = of_core if kept == "core" else [f"tests/plugins/{kept}"]
    if any(word.startswith("tests/") for word in arguments):
        tests = []
    with tempfile.TemporaryDirectory(prefix="simulator-without-plugins-") as folder:
        place = Path(folder)
        needed = (kept, *NEEDS.get(kept, ()))
        copy_without([name for name in PLUGINS if name not in needed], place)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "pytest", *arguments, *tests]
        return subprocess.call(command, cwd=place, env={**os.environ, "PYTHONPATH": path})


if __name__ == "__main__":
    sys.exit(main())
