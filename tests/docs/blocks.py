"""The fenced blocks of the README and the pages."""

import re
from dataclasses import dataclass
from pathlib import Path

from simulator.cli.columns import FOLDER
from simulator.plugins.manual.pages import GENERATED, page_names

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(FOLDER / f"{name}.md" for name in page_names() if name not in GENERATED),
]


@dataclass(frozen=True)
class Block:
    """The text of a block, without its fences, and where it stands."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str, pages: list[Path] = PAGES) -> list[Block]:
    """All blocks of a language, in order."""
    return [block for page in pages for block in reading_order(page) if block.language == language]


def reading_order(page: Path) -> list[Block]:
    """All blocks of a page, from top to bottom."""
    text = page.read_text()
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, text[: m.start()].count("\n") + 1, m[1], m[2]) for m in found]


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block with the output shown for each; continued lines are
    joined."""
    found: list[tuple[str, str]] = []
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


def shown(expected: str) -> re.Pattern[str]:
    """Matches output in which a line `...`, or the end `...` of a line, stands for anything."""
    parts = []
    for line in expected.splitlines():
        if line == "...":
            parts.append(r"(.*\n)*")
        elif line.endswith("..."):
            parts.append(re.escape(line[:-3]) + r".*\n")
        else:
            parts.append(re.escape(line) + r"\n")
    return re.compile("".join(parts))
