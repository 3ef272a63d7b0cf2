"""The floors of the developers' page: no import runs up, no files form a circle."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from without_plugins import NEEDS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "simulator/docs/developers.md"

DEFERRED = {
    "simulator": "public names are loaded when they are first used",
    "cli": "each command loads what it needs",
    "config.run_config": "settings of starts, models and integrators bring JAX; a file is read without them",
    "archive.rounding": "the package of grids brings JAX, which only rounded fields need when a run is read",
    "run.command": "the launcher of several processes starts no JAX of its own",
    "study.execution": "only batches compile a step",
}
"""Modules that import inside functions, and why; plugins may. Elsewhere imports stand at the top of a file."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    names = {}
    for path in (ROOT / "simulator").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


@cache
def imports(module: str, types: bool = True) -> frozenset[tuple[str, bool]]:
    """The modules of the package that `module` imports, and whether inside a function; without
    `types` those that it imports when it runs."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules() else node.module, inside
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            return
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, deeper)

    tree = ast.parse(modules()[module].read_text())
    return frozenset(
        pair for pair in visit(tree, False) if pair[0] in modules() and pair[0] != module
    )


def floors() -> dict[str, int]:
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_package_has_a_floor_and_no_import_runs_up():
    floor = floors()
    up = [
        f"{importer} imports {imported}"
        for importer in modules()
        for imported, _ in imports(importer)
        if package(importer) in floor
        and package(imported) in floor
        and floor[package(imported)] > floor[package(importer)]
    ]
    assert not up, f"{up}: the layers of developers.md forbid it; move what is shared downwards"
    packages = {p.parent.name for p in (ROOT / "simulator").glob("*/__init__.py")}
    assert packages | {"plugins"} == set(floors())  # the plugins may be absent


def plugin(module: str) -> str:
    return module.split(".")[2] if module.startswith("simulator.plugins.") else ""


def test_plugins_use_one_another_only_where_the_page_says_so():
    """The core imports none, which the floors forbid."""
    row = r"^\| `(\w+)` (uses|needs) `(\w+)` \|"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)
    said = {(user, other) for user, _, other in rows}
    needs = {(user, other) for user, verb, other in rows if verb == "needs"}
    cure = "NEEDS of scripts/without_plugins.py has the rows `A` needs `B` of developers.md"
    assert needs == {(user, other) for user in NEEDS for other in NEEDS[user]}, cure
    used = {
        (plugin(importer), plugin(imported))
        for importer in modules()
        for imported, _ in imports(importer)
        if plugin(importer) and plugin(imported)
    }
    used = {(user, other) for user, other in used if user != other}
    there = {(user, other) for user, other in said if user in map(plugin, modules())}
    differing = [f"`{user}` uses `{other}`" for user, other in sorted(used ^ there)]
    assert not differing, f"{differing}: add or remove the row in developers.md"


def in_circles(needs: dict[str, set[str]]) -> list[str]:
    """Repeatedly leaves out names that need nothing that is left; what remains is in a circle or
    above one."""
    left = dict(needs)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    return list(left)


def test_no_modules_and_no_packages_form_a_circle_and_imports_inside_functions_are_named():
    needs = {
        module: {imported for imported, _ in imports(module, types=False)}
        for module in modules()
        if module != "simulator"
    }
    assert not in_circles(needs)
    between = {name: set[str]() for name in floors()}
    for module in modules():
        if package(module) in between:
            between[package(module)] |= {package(imported) for imported, _ in imports(module)} - {
                package(module)
            }
    assert not in_circles(between)
    importers = {
        module
        for module in modules()
        if package(module) != "plugins" and any(inside for _, inside in imports(module))
    }
    named = {m.removeprefix("simulator.") for m in importers}
    rooms = {name for name in DEFERRED if "." not in name}
    first = {name: name.split(".")[0] for name in named}
    differing = {room if room in rooms else name for name, room in first.items()} ^ set(DEFERRED)
    cure = "import at the top of the file; DEFERRED of tests/test_floors.py lists the exceptions"
    assert not differing, f"{sorted(differing)}: {cure}"


def test_a_name_of_a_class_or_of_a_file_in_physics_means_one_thing():
    places: dict[str, set[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(module)
    twice = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert not twice, f"{twice}: give the new class another name"
    names = [
        path.name for module, path in modules().items() if module.startswith("simulator.physics")
    ]
    again = {name for name in names if names.count(name) > 1} - {"__init__.py"}
    assert not again, f"{again}: give the new file in physics another name"
