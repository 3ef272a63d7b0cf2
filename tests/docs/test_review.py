"""The pages for people who decide: every file that the reviewer's list names is there, the stable
names are the public ones, and marked places are the owner's."""

import importlib
import re

import pytest
import yaml

from simulator.cli.columns import FOLDER

from .blocks import ROOT

pytestmark = pytest.mark.smoke
REVIEW = (FOLDER / "review.md").read_text()
STABLE = (FOLDER / "reference" / "stability.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$", REVIEW, re.MULTILINE)


def test_every_row_of_the_reviewers_list_is_answered_by_a_file_or_a_page() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 32))
    assert sum("**owner**" in answer for *_, answer in ROWS) == 3
    for _, asked, _, answer in ROWS:
        files = re.findall(
            r"`((?:\.github|\.ci|scripts)/[\w./-]+|README\.md|pyproject\.toml)", answer
        )
        assert all((ROOT / file).exists() for file in files), asked
        assert files or "](" in answer or "**owner**" in answer, asked


def test_the_stable_names_are_the_public_ones() -> None:
    rows = dict(re.findall(r"^\| `(simulator[\w.]*)` \| (.+) \|$", STABLE, re.MULTILINE))
    named = {module: re.findall(r"`(\w+)`", names) for module, names in rows.items()}
    assert named.keys() == {"simulator", "simulator.equations", "simulator.spectral"}
    core = importlib.import_module("simulator")
    assert set(core.__all__) <= set(named["simulator"])
    assert all(hasattr(core, name) for name in named["simulator"])  # also those of plugins
    assert named["simulator.equations"] == importlib.import_module("simulator.equations").__all__
    spectral = importlib.import_module("simulator.spectral")
    assert set(named["simulator.spectral"]) <= {*spectral.__all__, "DistributedFFT"}
    assert all(hasattr(spectral, name) for name in named["simulator.spectral"])


def test_the_references_of_the_paper_are_in_its_bibliography() -> None:
    folder = ROOT / ".github" / "paper"
    head, text = (folder / "paper.md").read_text().split("---\n", 2)[1:]
    assert {"title", "tags", "authors", "affiliations", "bibliography"} <= yaml.safe_load(
        head
    ).keys()
    entries = re.findall(r"@\w+\{(\w+),\n([\s\S]*?)\n\}", (folder / "paper.bib").read_text())
    assert set(re.findall(r"@(\w+)", text)) == {key for key, _ in entries}
    assert all("doi = {10." in entry or "eprint" in entry for _, entry in entries)
    headings = re.findall(r"^# (.+)$", text, re.MULTILINE)
    assert headings == [
        "Summary",
        "Statement of need",
        "State of the field",
        "Software design",
        "Research impact statement",
        "AI usage disclosure",
        "Acknowledgements",
        "References",
    ]
    assert 750 <= len(text.split()) <= 1750  # what the Journal of Open Source Software asks


@pytest.mark.parametrize("name", ["bug", "idea", "question"])
def test_the_forms_of_issues_are_complete(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert form["name"] == name and form["description"]
    assert all(field["attributes"]["label"] for field in form["body"])
    assert name in (ROOT / ".github" / "SUPPORT.md").read_text()
