"""Writes the files that describe the program to others, from pyproject.toml and the changelog.

    python scripts/release.py metadata                    # .github/CITATION.cff and .github/codemeta.json
    python scripts/release.py assets v0.2.0 WHEEL FOLDER  # what the release of a tag carries

The assets of a release are, in FOLDER: notes.md (the changelog of the version), CITATION.cff and codemeta.json with
version and date, and for each platform a list of exact versions with checksums (requirements-cpu.txt, for
`pip install --require-hashes`) and a bill of materials (sbom-cpu.cdx.json, CycloneDX). pip chooses the versions that
suit this Python and this machine."""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = {"cpu": "", "cuda12": "[cuda12]"}
"""The platforms of a release, with the extras of the package that they need."""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _authors(about: Mapping[str, Any]) -> list[dict[str, str]]:
    named = [{"name": author["name"]} for author in about.get("authors", ())]
    return named or [{"name": f"The authors of {about['name']}"}]


def citation(about: Mapping[str, Any], version: str = "", date: str = "") -> str:
    """CITATION.cff, format 1.2.0."""
    urls = about.get("urls", {})
    entries = {
        "cff-version": "1.2.0",
        "message": "Please cite the program with its version, and the methods: `simulator cite RUN` prints both.",
        "type": "software",
        "title": f"{about['name']}: {about['description']}",
        "authors": _authors(about),
        "keywords": about["keywords"],
        "license": about.get("license"),
        "repository-code": urls.get("Source"),
        "version": version,
        "date-released": date,
    }
    present = {key: value for key, value in entries.items() if value}
    return "# Written by scripts/release.py from pyproject.toml.\n" + yaml.safe_dump(
        present, sort_keys=False, width=116
    )


def codemeta(about: Mapping[str, Any], version: str = "", date: str = "") -> str:
    """codemeta.json, version 2.0."""
    urls = about.get("urls", {})
    topics = [c.rpartition(" :: ")[2] for c in about["classifiers"] if c.startswith("Topic :: ")]
    entries = {
        "@context": "https://doi.org/10.5063/schema/codemeta-2.0",
        "@type": "SoftwareSourceCode",
        "name": about["name"],
        "description": about["description"],
        "author": [
            {"@type": "Person" if "authors" in about else "Organization", **author}
            for author in _authors(about)
        ],
        "applicationCategory": topics,
        "keywords": about["keywords"],
        "programmingLanguage": "Python",
        "runtimePlatform": f"Python {about['requires-python']}",
        "operatingSystem": "Linux",
        "softwareRequirements": about["dependencies"],
        "license": about.get("license"),
        "codeRepository": urls.get("Source"),
        "issueTracker": urls.get("Issues"),
        "version": version,
        "datePublished": date,
    }
    present = {key: value for key, value in entries.items() if value}
    return json.dumps(present, indent=2) + "\n"


def write_metadata(folder: Path, version: str = "", date: str = "") -> None:
    about = project()
    (folder / "CITATION.cff").write_text(citation(about, version, date))
    (folder / "codemeta.json").write_text(codemeta(about, version, date))


def notes(changelog: str, version: str) -> str:
    """The changelog of a version: its own section, else that of unreleased changes."""
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S))
    text = sections.get(version, sections.get("Unreleased", "")).strip()
    if not text:
        sys.exit(f"changelog.md: no section {version} and nothing unreleased")
    return text + "\n"


def resolved(wheel: Path, extras: str) -> list[dict[str, Any]]:
    """The packages that pip would install for a wheel, with checksums; the wheel's own comes first."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    printed = subprocess.run(
        [*command, "--report", "-", f"{wheel}{extras}"], check=True, stdout=subprocess.PIPE
    )
    packages = [
        {
            "name": item["metadata"]["name"],
            "version": item["metadata"]["version"],
            "license": item["metadata"].get("license_expression"),
            "sha256": item["download_info"]["archive_info"]["hashes"]["sha256"],
            "requested": item["requested"],
        }
        for item in json.loads(printed.stdout)["install"]
    ]
    return sorted(packages, key=lambda p: (not p["requested"], p["name"].lower()))


def lock(packages: list[dict[str, Any]]) -> str:
    """A requirements file with exact versions and checksums, without the program itself."""
    lines = (f"{p['name']}=={p['version']} --hash=sha256:{p['sha256']}" for p in packages[1:])
    return "\n".join(lines) + "\n"


def bill_of_materials(packages: list[dict[str, Any]]) -> str:
    """The packages in the format CycloneDX 1.5."""
    program, *others = packages
    components = [
        {
            "type": "library",
            "name": p["name"],
            "version": p["version"],
            "purl": f"pkg:pypi/{re.sub(r'[-_.]+', '-', p['name']).lower()}@{p['version']}",
            "hashes": [{"alg": "SHA-256", "content": p["sha256"]}],
            **({"licenses": [{"expression": p["license"]}]} if p["license"] else {}),
        }
        for p in others
    ]
    described = {"type": "application", "name": program["name"], "version": program["version"]}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": described},
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def write_assets(tag: str, wheel: Path, folder: Path) -> None:
    version = tag.removeprefix("v")
    if wheel.name.split("-")[1] != version:
        sys.exit(f"{wheel.name} is not of version {version}: build it from the tag {tag}")
    changelog = (ROOT / "simulator" / "docs" / "changelog.md").read_text()
    (folder / "notes.md").write_text(notes(changelog, version))
    write_metadata(folder, version, datetime.datetime.now(datetime.UTC).date().isoformat())
    for platform, extras in PLATFORMS.items():
        packages = resolved(wheel, extras)
        (folder / f"requirements-{platform}.txt").write_text(lock(packages))
        (folder / f"sbom-{platform}.cdx.json").write_text(bill_of_materials(packages))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    kinds = parser.add_subparsers(dest="what", required=True)
    metadata = kinds.add_parser("metadata")
    metadata.add_argument("folder", type=Path, nargs="?", default=ROOT / ".github")
    assets = kinds.add_parser("assets")
    assets.add_argument("tag")
    assets.add_argument("wheel", type=Path)
    assets.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.what == "metadata":
        write_metadata(options.folder)
    else:
        write_assets(options.tag, options.wheel, options.folder)


if __name__ == "__main__":
    main()
