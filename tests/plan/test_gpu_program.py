"""The program that a GPU would run, compiled for described H100s: memory, traffic, copies,
exchanges and overlap.

`gpu_program.yaml` holds ceilings: `SIMULATOR_LOWER_CEILINGS=1` writes the numbers that are below
them, which the tests ask for where memory or traffic is 3 % below. A ceiling that rises has its
line in the changelog."""

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hlo_program import parsed
from hlo_traffic import Traffic, executed, moved_by, traffic
from peers.collectives import collectives
from planning_cases import config_of, shipped
from tiers import slow_but

from simulator.config import RunConfig
from simulator.plan.machines import OPTIONS, compile_obstacle, described_devices, machine
from simulator.plan.step_memory import largest_transform
from simulator.simulation.abstract_run import paper_simulation
from simulator.simulation.compiling import Memory, words
from simulator.simulation.inputs import Inputs

NAME = "h100"
CEILINGS = Path(__file__).with_name("gpu_program.yaml")
LOWER = os.environ.get("SIMULATOR_LOWER_CEILINGS") == "1"
SHAPES = {1: (512, 512, 512), 4: (512, 1024, 1024), 8: (1024, 1024, 1024)}
"""512^3 points on each device."""
DYNAMO = "kinematic_dynamo"
MODELS = (
    "navier_stokes",
    "boussinesq",
    "mhd",
    DYNAMO,
    "self_gravitating_gas",
    "schrodinger_poisson",
    "composite",
)
CASES = [
    f"{model} {precision} {case}"
    for model in MODELS
    for precision in ("double", "single")
    for case in ("1 slab fast", "1 slab low", "4 slab fast", "8 slab fast", "8 pencil fast")
]
FEW = (
    "navier_stokes double 1 slab fast",
    "navier_stokes double 1 slab low",
    "navier_stokes double 8 slab fast",
    "navier_stokes single 8 pencil fast",
    "mhd single 1 slab fast",
    "schrodinger_poisson double 1 slab fast",
)
pytestmark = [
    pytest.mark.gpu_program,
    pytest.mark.usefixtures("optimised"),
    pytest.mark.skipif(
        compile_obstacle(machine(NAME)) is not None
        and not os.environ.get("SIMULATOR_TESTS_GPU_PROGRAMS"),  # set where they have to run
        reason=str(compile_obstacle(machine(NAME))),
    ),
]


def compiled_for(config: RunConfig, devices: int) -> Any:
    simulation = paper_simulation(config, Inputs(), described_devices(NAME, devices), "gpu")
    return simulation.lowered_loop().compile(compiler_options=OPTIONS)


@cache
def text_and_memory(case: str, *overrides: str) -> tuple[str, float, Traffic]:
    """(scheduled program, numbers per grid point with the FFT library's workspace, traffic)."""
    model, precision, devices, plan, memory = case.split()
    shape = list(SHAPES[int(devices)])
    if model in (DYNAMO, "mhd"):  # the first shipped run of MHD is a kinematic dynamo
        overrides = (*overrides, f"model.kinematic={model == DYNAMO}")
    config = config_of(
        "mhd" if model == DYNAMO else model,
        f"grid.shape={shape}",
        f"precision={precision}",
        f"fft.decomposition={plan}",
        f"run.memory={memory}",
        *overrides,
    )
    program = compiled_for(config, int(devices))
    held = Memory.of(program).total + largest_transform(program)
    return program.as_text(), words(held, config, math.prod(shape), int(devices)), traffic(program)


def copies(text: str) -> float:
    """How often a step copies or transposes more than a megabyte, and computes nothing in doing
    so."""
    program = parsed(text)
    count = 0.0
    moving = {
        "copy",
        "transpose",
        "bitcast",
        "reshape",
        "parameter",
        "slice",
        "tuple",
        "get-tuple-element",
    }
    for one, around, _, times in executed(program):
        only_moves = one.opcode in ("copy", "transpose", "copy-start")
        if one.opcode == "fusion":
            fused = program.computations[one.called("calls")[0]]
            only_moves = {inner.opcode for inner in fused.values()} <= moving
        if only_moves and moved_by(program, one, around) > 2 << 20:
            count += times
    return count


def ceilings() -> dict[str, list[float]]:
    return yaml.safe_load(CEILINGS.read_text()) or {}


def test_ceilings_are_of_cases_that_there_are():
    differing = ({*MODELS, "python"} - {DYNAMO}) ^ set(shipped())
    cure = "MODELS of tests/plan/test_gpu_program.py lists the models of configs/*.yaml"
    assert not differing, f"{sorted(differing)}: {cure}"
    differing = set(ceilings()) ^ set(CASES)
    cure = (
        "SIMULATOR_LOWER_CEILINGS=1 ./scripts/test --slow tests/plan/test_gpu_program.py -k MODEL"
    )
    assert not differing, f"{sorted(differing)}: {cure} writes tests/plan/gpu_program.yaml"
    assert set(FEW) <= set(CASES)


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in FEW else pytest.mark.slow, id=c) for c in CASES]
)
def test_a_step(case: str):
    """Numbers of the run's precision per grid point, bytes of a step (GB), whole-field copies and
    kernels. Every all-to-all is asynchronous, and no field is gathered: at most planes, of which a
    field has hundreds."""
    text, numbers, moved = text_and_memory(case)
    found = [numbers, moved.bytes / 1e9, copies(text), moved.kernels]
    if LOWER:
        lowered = ceilings()
        old = lowered.get(case, [math.inf] * 4)
        rounded = [
            math.ceil(100 * found[0]) / 100,
            math.ceil(10 * found[1]) / 10,
            *map(int, found[2:]),
        ]
        lowered[case] = [min(pair) for pair in zip(rounded, old, strict=True)]
        lines = [f"{name}: {lowered[name]}" for name in CASES if name in lowered]
        head = "# Numbers per grid point, GB per step, copies of whole fields, kernels of the compiled step.\n"
        CEILINGS.write_text(head + "\n".join(lines) + "\n")
    assert all(a <= b for a, b in zip(found, ceilings()[case], strict=True)), (
        found,
        ceilings()[case],
    )
    # A ceiling far above what is measured would hide a rise.
    assert all(a > 0.97 * b for a, b in zip(found[:2], ceilings()[case][:2], strict=True)), (
        found,
        ceilings()[case],
    )
    sent = collectives(text)
    assert " all-to-all(" not in text
    assert text.count(" all-to-all-start(") == text.count(" all-to-all-done(")
    assert (sent["all-to-all"].count > 0) == (" 1 slab" not in case)
    field = math.prod(SHAPES[int(case.split()[2])]) * (8 if "double" in case else 4)
    assert sent["all-gather"].bytes < 0.05 * field


@pytest.mark.parametrize("model", slow_but(MODELS, ["navier_stokes"]))
def test_fast_moves_least_and_low_holds_least(model: str):
    """Between them lies only what `run.memory: auto` chooses by."""
    _, fast_numbers, fast = text_and_memory(f"{model} double 1 slab fast")
    _, low_numbers, low = text_and_memory(f"{model} double 1 slab low")
    assert fast.bytes <= low.bytes and low_numbers <= fast_numbers


def without_transform_between(text: str) -> tuple[int, int]:
    """(all-to-alls between whose start and done no local transform is scheduled, all of them)."""
    lacking = total = 0
    for computation in parsed(text).computations.values():
        order = list(computation.values())
        at = {one.name: i for i, one in enumerate(order)}
        for i, one in enumerate(order):
            if one.opcode == "all-to-all-done":
                between = order[at[one.operands[0]] : i]
                total += 1
                lacking += not any(other.opcode == "fft" for other in between)
    return lacking, total


def test_exchanges_overlap_transforms_and_narrow_ones_send_half():
    """All but one in each of the four stages of a step, there and back: fewer than the first of
    each direction."""
    text, _, _ = text_and_memory("navier_stokes double 8 slab fast")
    lacking, total = without_transform_between(text)
    assert total == 4 * (3 + 5) and lacking <= 4
    # The steps of the GPU's programs differ by the conversions alone.
    full = text_and_memory("navier_stokes double 8 slab fast")[2]
    half = text_and_memory("navier_stokes double 8 slab fast", "fft.exchange=single")[2]
    assert half.sent == pytest.approx(0.5 * full.sent, rel=1e-6)  # beside a maximum's reduction
    assert half.bytes < 1.02 * full.bytes


@pytest.mark.parametrize("name", ["v100", "a100-80", "h200", "gh200", "b200", "gb200", "b300"])
def test_every_described_gpu_is_compiled_for(name: str):
    """Traffic is the program's; it hardly depends on the device."""
    config = config_of("navier_stokes", "grid.shape=64,64,64")
    simulation = paper_simulation(config, Inputs(), described_devices(name, 2), "gpu")
    found = traffic(simulation.lowered_loop().compile(compiler_options=OPTIONS))
    assert found.bytes == pytest.approx(traffic(compiled_for(config, 2)).bytes, rel=0.1)
