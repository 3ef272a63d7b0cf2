"""A page of the documentation as a Jupyter notebook."""

import re
from typing import Any

WRITE = "%%writefile"
"""The first word of a cell that writes a file."""


def has_python(page: str) -> bool:
    """Whether a page has blocks of Python, which make it a notebook."""
    return "\n```python\n" in page


def notebook(page: str) -> dict[str, Any]:
    """The notebook (format 4.4) of a page: its blocks of Python are cells of code, and so are blocks
    with a title, which write the file of that name; the rest is text."""
    blocks = re.compile(r'^```(python|\w+ title="[^"\n]+")\n(.*?)^```$', re.M | re.S)
    texts = iter(blocks.split(page))
    cells = [_cell("markdown", next(texts))]
    for kind, code, text in zip(texts, texts, texts, strict=True):
        title = re.search(r'"(.+)"', kind)
        cells.append(_cell("code", f"{WRITE} {title[1]}\n{code}" if title else code))
        cells.append(_cell("markdown", text))
    return {
        "cells": [cell for cell in cells if cell["source"]],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
        "nbformat": 4,
        "nbformat_minor": 4,
    }


def _cell(kind: str, source: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "metadata": {}, "source": source.strip()}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})
