"""The pictures of the pages are made by the commands that the pages print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from run_support import ROOT

DOCS = ROOT / "simulator" / "docs"
TABLE = yaml.safe_load((ROOT / "scripts" / "gallery.yaml").read_text())


def one_line(text: str) -> str:
    """Text without line breaks and without the prompts of a console."""
    return " ".join(re.sub(r"\\\n|^\$ ", " ", text, flags=re.MULTILINE).split())


def showing(picture: str) -> list[str]:
    """The pages on which the picture is shown, each in one line."""
    shown = f"({'assets' if 'assets' in picture else 'gallery'}/{Path(picture).name})"
    pages = [path.read_text() for path in DOCS.rglob("*.md")]
    return [one_line(text) for text in pages if shown in text.replace("](../", "](")]


@pytest.mark.parametrize("picture", TABLE["pictures"])
def test_a_page_prints_the_commands_of_its_picture(picture: str):
    assert (ROOT / picture).is_file()
    commands = [one_line(command) for command in TABLE["pictures"][picture]["commands"]]
    assert any(all(c in text for c in commands) for text in showing(picture)), commands


def test_every_picture_of_an_equation_and_of_the_gallery_is_in_the_table():
    page = one_line((DOCS / "physics" / "equations.md").read_text())
    assert all(f"`{command}`" in page for command in TABLE["equations"]["commands"])
    pictures = (DOCS / "assets" / "equations").glob("*.png")
    assert {path.stem for path in pictures} == TABLE["equations"]["fields"].keys()
    listed = {Path(path).name for path in TABLE["pictures"]}
    assert {p.name for p in (ROOT / "outputs" / "gallery").glob("*.png")} <= listed


def test_an_unknown_picture_is_refused():
    command = [sys.executable, str(ROOT / "scripts" / "gallery.py"), "mona_lisa"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "unknown picture 'mona_lisa'; --list prints the names" in done.stderr
