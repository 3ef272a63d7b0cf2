"""Hooks of mkdocs: the order of the pages, the generated pages, the gallery, and formulas."""

import html
import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from simulator.cli import build_parser
from simulator.plugins.manual.notebook import has_python, notebook
from simulator.plugins.manual.pages import GENERATED, page_text, sections

ROOT = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    pages = {section: [f"{name}.md" for name in members] for section, members in sections().items()}
    config.nav = [
        {section: names if len(names) > 1 else names[0]} for section, names in pages.items()
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    for name in GENERATED:
        files.append(File.generated(config, f"{name}.md", content=page_text(name, build_parser())))
    for name in sections()["Tutorials"]:
        if has_python(text := page_text(name, build_parser())):
            book = json.dumps(notebook(text), indent=1)
            files.append(File.generated(config, f"{name}.ipynb", content=book))
    for picture in sorted((ROOT / "outputs" / "gallery").glob("*.png")):
        files.append(File.generated(config, f"gallery/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Sets the blocks of LaTeX as MathML, which browsers draw without scripts or fonts of ours, and
    links tutorials to their notebooks."""
    uri = page.file.src_uri
    if uri.startswith("tutorials/") and has_python(markdown):
        book = uri.removeprefix("tutorials/").removesuffix(".md")
        markdown += f"\n\n[This page as a notebook]({book}.ipynb)\n"

    def formula(block: re.Match[str]) -> str:
        return f'<div class="formula">{convert(block[1].strip(), display="block")}</div>'

    return re.sub(r"^```math\n(.*?)^```$", formula, markdown, flags=re.MULTILINE | re.DOTALL)


UNREAD = re.compile(r"^\s*\|[ :]*---|^\s*\| .* \|\s*$|```|^:::", re.MULTILINE)
"""Markdown that the text of a built page shows as it is, such as a table broken by a blank line."""


def on_page_content(content: str, page: Any, **_: Any) -> None:
    text = re.sub(r"(?s)<(pre|code|math)\b.*?</\1>", "", content)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    if found := UNREAD.search(text):
        raise PluginError(
            f"{page.file.src_uri}: the page shows its Markdown: {found[0].strip()[:80]}"
        )
