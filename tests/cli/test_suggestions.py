"""What a refusal suggests is accepted."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.config import load_config
from simulator.errors import UserError
from simulator.run.refusals import check_configuration

RUN = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 16, 16]}
initial: {kind: taylor_green}
time: {stop: 1}
devices: {platform: cpu, count: 1}
"""
MISTAKES = """\
time.integrator=rk5
time.cfl=9
grid.dealias=twothird
grid.shap=[8,8,8]
initial.kind=taylor
forcing={kind: lineer, coefficient: 1}
forcing={kind: kolmogorov, amplitude: 1, wavenumber: 0}
model.kind=navier
model.rotatoin=[0,0,1]
viscosity=0.1
output.slices.fields=[vorticity]
output.snapshots.fields=[velocty]
output.probes={every_steps: 1}
output.every=2
output.diagnostics.every=often
output.checkpoints.every_wall=5 parsec
devices.count=64
devices.platform=gpuu
fft.decomposition=pencils
particles=[{name: a, kind: tracr, count: 5}]
particles=[{name: a, kind: tracer, count: 5, start: lattice}]
slurm.time=99:99
model.subgrid={kind: smag}
model.scalars=[{name: velocity, diffusivity: 1}]
"""
OF_STATISTICS = (
    "output.histograms={evry_steps: 1}",
    "output.transfer={every_steps: 1, fields: [velocity]}",
)


def refusal(folder: Path, *overrides: str) -> str | None:
    try:
        check_configuration(load_config(folder / "run.yaml", overrides))
    except UserError as error:
        return str(error)
    return None


def corrected(mistake: str, message: str) -> Iterator[str]:
    """The overrides that follow the suggestions of a refusal."""
    key, _, value = mistake.partition("=")
    said = message.partition(": ")[2]
    place = said.partition(":")[0]
    wrong = re.search(
        r"unknown \w+ '([^']+)'|not '?([^' ]+)'?$|: '?(\w+)'? (?:is not a|cannot)", said
    )
    word = next(filter(None, wrong.groups()), "") if wrong else ""
    for meant in re.findall(r"did you mean ([\w.]+(?: or [\w.]+)*)\?", said):
        for one in meant.split(" or "):
            if "unknown key" in said:
                inside = one.removeprefix(f"{key}.") if one.startswith(f"{key}.") else None
                old = place.rpartition(".")[2]
                yield mistake.replace(old, inside) if inside else f"{one}={value}"
            else:
                yield f"{key}={value.replace(word, one, 1)}"
    for bound in re.findall(r"(?:at least|at most|nearest are) ([\d.e-]+)", said):
        old = re.search(rf"{place.rpartition('.')[2]}: ([\d.]+)", value)
        yield f"{key}={value.replace(old[1], bound) if old else bound}"
    for example in re.findall(r"e\.g\. (\{[^}]*\}|\[[^\]]*\]|[\w:.*/-]+)", said):
        yield f"{key}={value.replace(word, example, 1) if word in value else example}"
    for other, choices in re.findall(
        r"(?:Possible:|,) ([a-z]+\.[a-z]+): ([\w]+(?: or \w+)*)", said
    ):
        yield from (f"{other}={choice}" for choice in choices.split(" or "))


@pytest.mark.parametrize(
    "mistake",
    [
        *MISTAKES.splitlines(),
        *(pytest.param(m, marks=pytest.mark.plugins("statistics")) for m in OF_STATISTICS),
    ],
)
def test_a_suggestion_is_accepted(tmp_path, mistake):
    """If it names a kind that needs further keys, these are the only thing left to say."""
    (tmp_path / "run.yaml").write_text(RUN)
    message = refusal(tmp_path, mistake)
    assert message is not None
    for correction in corrected(mistake, message):
        both = (
            [mistake, correction]
            if correction.partition("=")[0] in ("fft.backend",)
            else [correction]
        )
        left = refusal(tmp_path, *both)
        needs = re.compile(r"missing|give one of")
        assert all(needs.search(line) for line in (left or "").splitlines()), (
            message,
            correction,
            left,
        )
