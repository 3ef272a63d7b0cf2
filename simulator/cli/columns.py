"""Formula and meaning of columns, from the pages of the documentation that list them."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs"


def described_columns() -> dict[str, list[tuple[str, str, str]]]:
    """File, formula and meaning of the columns of diagnostics.csv and the variables of series, by name,
    from the pages that list them."""
    described: dict[str, list[tuple[str, str, str]]] = {}
    for page in ("reference/columns", "reference/series"):
        place = "diagnostics.csv"
        for line in (FOLDER / f"{page}.md").read_text().splitlines():
            if line.startswith("## ") and line.endswith(".h5"):
                place = line.removeprefix("## ")
            if not line.startswith("| `"):
                continue
            names, *_, formula, meaning = re.split(r"(?<!\\)\|", line.strip("|"))
            row = place, _plain(formula), _plain(meaning)
            for name in re.findall(r"`([^`]+)`", names):
                described.setdefault(name, []).append(row)
    return described


def _plain(cell: str) -> str:
    """The text of a cell of a Markdown table."""
    return re.sub(r"\\([|*_\[\]])", r"\1", cell.strip())
