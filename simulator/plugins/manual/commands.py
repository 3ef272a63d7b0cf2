"""The commands `docs` and `cite`."""

import argparse
import re
from pathlib import Path

from simulator.cli.columns import FOLDER
from simulator.cli.parser import arg, command
from simulator.errors import UserError
from simulator.words import flat, version_of


@command(
    "show the documentation, without a network",
    arg("page PAGE", "a page's name, or the last part of it", nargs="?"),
    arg("--list", "list the pages", action="store_true"),
    arg("--notebook", "print the page as a Jupyter notebook", action="store_true"),
    group="about",
)
def docs_command(args: argparse.Namespace) -> int:
    """Show a page of the documentation. In a terminal it is formatted, in a pipe it is Markdown. Without PAGE, show
    the first page.

    example: simulator docs guide/restart
      simulator docs tutorials/soliton --notebook > soliton.ipynb"""
    from simulator.plugins.manual.pages import page_list, show

    if not args.list:
        show(args.page, as_notebook=args.notebook)
    elif args.page is None:
        page_list()
    else:
        raise UserError("simulator docs: --list lists all pages; leave PAGE out")
    return 0


@command(
    "print BibTeX entries for the program and the methods of a run",
    arg("config CONFIG", "a run's YAML file, or a run's folder", nargs="?"),
    group="about",
)
def cite_command(args: argparse.Namespace) -> int:
    """Print BibTeX entries of the program and, with CONFIG, of the methods that the run uses.

    example: simulator cite configs/taylor_green.yaml"""
    entries = [_PROGRAM % version_of()]
    if args.config is not None:
        from simulator.config import as_mapping, load_config

        path = Path(args.config)
        config = load_config(path / "config.yaml" if path.is_dir() else path, check_files=False)
        used = set(map(str, flat(as_mapping(config) | {"name": ""}).values()))
        methods = re.findall(
            r"^% (.+)\n(@[\s\S]+?\n})$", (FOLDER / "methods.bib").read_text(), re.MULTILINE
        )
        entries += [entry for names, entry in methods if used & set(names.split(", "))]
    print("\n\n".join(entries))
    return 0


_PROGRAM = """@software{simulator,
  title = {simulator: Pseudo-spectral fluids and self-gravitating matter in a periodic box, on JAX, under Slurm},
  version = {%s}
}"""
