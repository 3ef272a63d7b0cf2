"""Docstrings begin with their noun or their verb, which no sentence before them has named."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "simulator"
HEADLESS = re.compile(r"(Of|That|Those|What|In the|By|Whether it)\b")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each string that stands alone: under a module, class, function or
    attribute."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text.strip()


def test_the_strings_under_classes_and_attributes_are_docstrings():
    source = '"""A."""\nclass C:\n    """B."""\n    x: int\n    """C."""\n    def f(self): "D."\n'
    assert sorted(docstrings(source)) == [(1, "A."), (3, "B."), (5, "C."), (6, "D.")]


def test_a_docstring_begins_with_its_noun_or_verb():
    headless = [
        f"{file.relative_to(PACKAGE)}:{line}: {text[:60]}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, text in docstrings(file.read_text())
        if HEADLESS.match(text)
    ]
    assert not headless, "\n".join(headless)
