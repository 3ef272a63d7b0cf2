"""The container recipes: both make the same image, from files that exist. Building them needs a base image."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "scripts" / "container" / "Dockerfile").read_text()
APPTAINER = (ROOT / "scripts" / "container" / "simulator.def").read_text()


def test_both_copy_the_same_files_and_all_exist() -> None:
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE)]
    sources = {source for words in copied for source in words}
    listed = APPTAINER.split("%files")[1].split("%post")[0].split()[::2]
    assert sources == set(listed)
    assert all((ROOT / source).exists() for source in sources)


def test_both_take_the_same_packages_and_the_same_setup() -> None:
    recipes = (DOCKERFILE, APPTAINER)
    base = [re.findall(r"^(?:FROM|From:) (\S+)", recipe, re.MULTILINE) for recipe in recipes]
    packages = [re.findall(r"--no-install-recommends ([^&]*) &&", recipe) for recipe in recipes]
    assert base[0] == base[1] == ["python:3.12-slim"] and packages[0] == packages[1] != []
    assert all("./scripts/run --setup" in recipe and "SIMULATOR_VENV=/opt/venv" in recipe for recipe in recipes)
