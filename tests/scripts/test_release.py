"""What a release carries: citation, notes, exact versions with checksums, and a bill of materials;
and the workflows that run actions of others."""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import release
import yaml
from run_support import ROOT

from simulator.cli import main

METADATA = ("CITATION.cff", "codemeta.json")


@pytest.mark.smoke
def test_the_metadata_are_those_of_pyproject(tmp_path: Path, capsys) -> None:
    release.write_metadata(tmp_path)
    for name in METADATA:
        written = (tmp_path / name).read_text()
        assert written == (ROOT / ".github" / name).read_text(), (
            "python scripts/release.py metadata"
        )
    assert main(["cite"]) == 0
    assert f"title = {{{cited()['title']}}}" in capsys.readouterr().out


def cited(**changes: object) -> dict:
    return yaml.safe_load(release.citation({**release.project(), **changes}))


def test_authors_licence_and_addresses_appear_once_the_owner_has_chosen_them() -> None:
    assert cited().keys() & {"license", "repository-code", "version"} == set()
    chosen = {
        "authors": [{"name": "A. Author"}],
        "license": "ISC",
        "urls": {"Source": "https://example.org/simulator"},
    }
    entries = cited(**chosen)
    assert entries["authors"] == chosen["authors"] and entries["license"] == "ISC"
    assert entries["repository-code"] == chosen["urls"]["Source"]
    described = json.loads(release.codemeta({**release.project(), **chosen}, "0.2.0", "2030-01-02"))
    assert described["author"] == [{"@type": "Person", "name": "A. Author"}]
    assert described["codeRepository"] == chosen["urls"]["Source"]
    assert described["version"] == "0.2.0" and described["datePublished"] == "2030-01-02"


def test_notes_are_the_section_of_the_version_else_what_is_unreleased() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0\n\n- old\n"
    assert release.notes(changelog, "0.2.0") == "- new\n"
    assert release.notes(changelog, "0.1.0") == "- old\n"
    with pytest.raises(SystemExit, match=r"no section 0\.2\.0"):
        release.notes("# Changelog\n\n## 0.1.0\n\n- old\n", "0.2.0")


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """A wheel with nothing but metadata."""
    about, path = f"{name}-{version}.dist-info", folder / f"{name}-{version}-py3-none-any.whl"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires] + ["Provides-Extra: cuda12"]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{about}/METADATA", "\n".join(lines) + "\n")
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")
    return path


def test_the_lists_of_a_release_install_again_with_their_checksums(
    tmp_path: Path, monkeypatch
) -> None:
    shelf, dist = tmp_path / "shelf", tmp_path / "dist"
    for folder in (shelf, dist):
        folder.mkdir()
    needed = [wheel(shelf, "alpha", "1.5", "beta_b>=1"), wheel(shelf, "beta_b", "2.0")]
    wheel(shelf, "beta_b", "0.9")
    gamma = wheel(shelf, "gamma", "3.0")
    ours = wheel(dist, "simulator", "0.2.0", "alpha", "gamma; extra == 'cuda12'")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(shelf)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    with pytest.raises(SystemExit, match="build it from the tag"):
        release.write_assets("v0.3.0", ours, dist)
    release.write_assets("v0.2.0", ours, dist)

    lines = (dist / "requirements-cpu.txt").read_text().splitlines()
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in needed]
    assert lines == [
        f"alpha==1.5 --hash=sha256:{sums[0]}",
        f"beta_b==2.0 --hash=sha256:{sums[1]}",
    ]
    gpu = (dist / "requirements-cuda12.txt").read_text().splitlines()
    assert gpu[:2] == lines and gpu[2].startswith(f"{gamma.name.split('-')[0]}==3.0 ")
    install = [sys.executable, "-m", "pip", "install", "-q", "--require-hashes", "--target"]
    listed = dist / "requirements-cuda12.txt"
    subprocess.run([*install, tmp_path / "site", "-r", listed], check=True, capture_output=True)

    bill = json.loads((dist / "sbom-cpu.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == "0.2.0"
    assert [(c["purl"], c["hashes"][0]["content"]) for c in bill["components"]] == [
        ("pkg:pypi/alpha@1.5", sums[0]),
        ("pkg:pypi/beta-b@2.0", sums[1]),
    ]
    assert yaml.safe_load((dist / "CITATION.cff").read_text())["version"] == "0.2.0"
    assert (dist / "notes.md").read_text().startswith("- ")


USES = re.compile(r"uses: (\S+)(.*)")


@pytest.mark.smoke
@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").iterdir()), ids=str)
def test_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    uses = USES.findall(path.read_text())
    assert uses and yaml.safe_load(path.read_text())["jobs"]
    for action, comment in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment), action
