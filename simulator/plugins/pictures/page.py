"""Writes self-contained HTML pages from the templates in `pages/`.

A page loads no other file: styles and pictures are embedded. Anybody may have written the texts of a
run, so the templates escape all text, and a policy forbids browsers to execute code."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

Verdict = Literal["good", "warn", "bad", "note"]
MARKS: dict[Verdict, str] = {"good": "✓", "warn": "!", "bad": "✗", "note": "·"}


class Cell(NamedTuple):
    """A cell of a table, with the mark of a verdict before its text, or with a link to a file
    relative to the page."""

    text: str
    verdict: Verdict | None = None
    path: str = ""


def _embedded(path: Path) -> str:
    """The address of a PNG or SVG file that holds the file."""
    kind = "svg+xml" if path.suffix == ".svg" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _address(path: str) -> str:
    """The address of a file relative to the page, whatever scheme its name looks like."""
    return f"./{quote(os.fsencode(path))}"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("pages")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_TEMPLATES.filters |= {"embedded": _embedded, "address": _address}
_TEMPLATES.globals["marks"] = MARKS
_PARTS: Any = _TEMPLATES.get_template("parts.html").module
_TEMPLATES.globals["parts"] = _PARTS
# The parts of pages that are composed in Python: functions of plain text, or of parts.
heading = _PARTS.heading
paragraph = _PARTS.paragraph
section = _PARTS.section
facts = _PARTS.facts
pictures = _PARTS.pictures


def page(
    title: str, body: Sequence[str] = (), template: str = "page.html", **content: object
) -> str:
    """The document with the parts `body`, or of another template with its content. `refresh`: the
    seconds after which a browser reloads it."""
    content = {"refresh": None, "written": "", "title": title, "body": body, **content}
    text = _TEMPLATES.get_template(template).render(content)
    return text.encode(errors="backslashreplace").decode()  # a file's name need not be UTF-8
