"""Composes a self-contained HTML page: its frame, tables, and pictures with captions.

The page loads no other file: styles and pictures are embedded. Anybody may have written the texts
of a run, so these functions escape all text, and a policy forbids browsers to execute code.
Arguments are plain text unless the docstring mentions HTML."""

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Literal
from urllib.parse import quote

Verdict = Literal["good", "warn", "bad", "note"]
_MARKS: Mapping[Verdict, str] = {"good": "✓", "warn": "!", "bad": "✗", "note": "·"}


class Cell(str):
    """A table cell as HTML; any other text in a table is escaped."""


_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, body: Iterable[str], refresh: int | None = None) -> str:
    """The whole document. `refresh`: seconds after which a browser reloads the page."""
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    style = Path(__file__).with_name("page.css").read_text()
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{again}'
        f"<title>{escape(title)}</title><style>\n{style}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )
    return text.encode(errors="backslashreplace").decode()  # a file's name need not be UTF-8


def heading(title: str, word: str, verdict: Verdict) -> str:
    return f'<h1>{escape(title)} <span class="badge {verdict}">{escape(word)}</span></h1>'


def section(title: str, *parts: str) -> str:
    """A heading and the HTML below it; empty if there is no content."""
    inside = "\n".join(part for part in parts if part)
    return f"<section><h2>{escape(title)}</h2>\n{inside}</section>" if inside else ""


def paragraph(text: str, *, soft: bool = False) -> str:
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>"


def progress(percent: float) -> str:
    """A progress bar without text."""
    return f'<div class="bar"><div style="width:{min(max(percent, 0), 100):.1f}%"></div></div>'


def facts(rows: Mapping[str, str]) -> str:
    """Names and values, both plain text."""
    cells = "".join(
        f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items() if v
    )
    return f'<div class="wide"><table>{cells}</table></div>' if cells else ""


def marked(verdict: Verdict, text: str) -> Cell:
    """A table cell with a mark before its text."""
    return Cell(
        f'<td class="{verdict}"><span class="mark">{_MARKS[verdict]}</span>{escape(text)}</td>'
    )


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    *,
    close: bool = False,
) -> str:
    """A table of rows of cells. Columns in `numbers` are aligned to the right. `close`: cells do
    not wrap, so that each row is one line, and a wide table scrolls."""
    right = set(numbers)

    def kind(i: int) -> str:
        return ' class="number"' if i in right else ""

    head = "".join(f"<th{kind(i)}>{escape(name)}</th>" for i, name in enumerate(header))
    head = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    body = ""
    for row in rows:
        cells = (
            cell if isinstance(cell, Cell) else f"<td{kind(i)}>{escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    kinds = "wide close" if close else "wide"
    return f'<div class="{kinds}"><table>{head}<tbody>{body}</tbody></table></div>'


def pictures(captioned: Iterable[tuple[Path, str]]) -> str:
    """PNG or SVG files, each with its caption, embedded in the page."""
    figures = ""
    for path, caption in captioned:
        kind = "svg+xml" if path.suffix == ".svg" else "png"
        data = base64.b64encode(path.read_bytes()).decode()
        image = (
            f'<img alt="{escape(caption)}" loading="lazy" src="data:image/{kind};base64,{data}">'
        )
        figures += f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
    return f'<div class="pictures">{figures}</div>' if figures else ""


def details(title: str, html: str) -> str:
    """A part of the page that a click on its title unfolds; empty if there is no content."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>" if html else ""


def folded(title: str, text: str) -> str:
    """Plain text that the page shows after a click on the title."""
    return details(title, lines(text))


def lines(text: str) -> str:
    """Plain text in its own lines."""
    return f"<pre>{escape(text)}</pre>" if text else ""


def link(path: str, text: str) -> Cell:
    """A table cell with a link to a file relative to the page, whatever scheme its name looks
    like."""
    return Cell(f'<td><a href="./{quote(os.fsencode(path))}">{escape(text)}</a></td>')
