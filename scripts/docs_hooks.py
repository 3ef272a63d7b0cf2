"""Hooks of mkdocs: the order of the pages, the generated pages, and the gallery."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from simulator.cli import build_parser
from simulator.cli.about import GENERATED, SECTIONS, page

ROOT = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    pages = {section: [f"{name}.md" for name in members] for section, members in SECTIONS.items()}
    config.nav = [{section: names if len(names) > 1 else names[0]} for section, names in pages.items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    for name in GENERATED:
        files.append(File.generated(config, f"{name}.md", content=page(name, build_parser())))
    for picture in sorted((ROOT / "outputs" / "gallery").glob("*.png")):
        files.append(File.generated(config, f"gallery/{picture.name}", abs_src_path=str(picture)))
    return files
