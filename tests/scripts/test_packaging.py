"""The recipes for Spack and EasyBuild: their versions are those of pyproject.toml."""

import ast

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from release import project
from run_support import ROOT

pytestmark = pytest.mark.smoke

FOLDER = ROOT / "scripts" / "packaging"
LEFT_OUT = {"jaxdecomp"}
"""Packages that Spack lacks and the program can do without."""


def required(python: str) -> dict[str, SpecifierSet]:
    """The dependencies of pyproject.toml on a Python, by name."""
    found = map(Requirement, project()["dependencies"])
    environment = {"python_version": python, "platform_machine": "x86_64"}
    return {
        r.name: r.specifier for r in found if r.marker is None or r.marker.evaluate(environment)
    }


def of_spack(specifier: SpecifierSet) -> tuple[str, str]:
    """The range and the excluded versions of a specifier in Spack's words."""
    by_operator: dict[str, list[str]] = {}
    for each in sorted(specifier, key=lambda s: Version(s.version)):
        by_operator.setdefault(each.operator, []).append(each.version)
    low = "".join(by_operator.get(">=", ()))
    high = "".join(f"{(v := Version(e)).major}.{v.minor - 1}" for e in by_operator.get("<", ()))
    return f"@{low}:{high}" if low else "", ",".join(by_operator.get("!=", ()))


def test_the_recipe_for_spack_has_the_versions_of_the_package() -> None:
    tree = ast.parse((FOLDER / "package.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = {
        (node.func.id, node.args[0].value)
        for node in calls
        if isinstance(node.func, ast.Name) and isinstance(node.args[0], ast.Constant)
    }
    expected = {("depends_on", "python" + of_spack(SpecifierSet(project()["requires-python"]))[0])}
    for name, specifier in required("3.13").items():
        if name not in LEFT_OUT:
            versions, excluded = of_spack(specifier)
            expected.add(("depends_on", f"py-{name}{versions}"))
            expected |= {("conflicts", f"^py-{name}@{excluded}")} if excluded else set()
    build = {"gcc", "py-setuptools@68:", "py-setuptools-scm@8:"}
    found = {(f, a) for f, a in named if f in ("depends_on", "conflicts") and a not in build}
    assert found == expected


def test_the_easyconfig_fulfils_the_requirements_of_the_package() -> None:
    (file,) = FOLDER.glob("simulator-*.eb")
    tree = ast.parse(file.read_text())
    values = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    listed = dict(ast.literal_eval(values["dependencies"]))
    listed |= {e.elts[0].value: e.elts[1].value for e in values["exts_list"].elts[:-1]}
    versions = {name.lower(): version for name, version in listed.items()}
    bundled = {"jaxlib": "jax", "jinja2": "python-bundle-pypi", "rich": "python-bundle-pypi"}
    bundled |= {"packaging": "python", "numpy": "scipy-bundle", "scipy": "scipy-bundle"}
    assert Version(versions["python"]) in SpecifierSet(project()["requires-python"])
    for name, specifier in required("3.14").items():
        if name in bundled:
            assert bundled[name] in versions
        else:
            assert specifier.contains(versions[name]), name
