"""Parts of every shape that a registry can hold: these tests do not depend on which ones are
shipped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from simulator.config import Registries, RunConfig, assemble, load_config
from simulator.errors import UserError
from simulator.physics.forcing import Forcing
from simulator.physics.initial import Initial
from simulator.physics.models import Equation
from simulator.physics.particles import PARTICLES
from simulator.physics.stepping import Integrator
from simulator.physics.terms import TERMS
from simulator.settings import Count, InputPath, NonNegative, Real, Settings

SHORT = """\
model: {kind: viscous, viscosity: 1/1600}
initial: {kind: vortex}
time: {stop: 1}
"""


class Damping(Settings):
    order: Count
    coefficient: NonNegative


class Scalar(Settings):
    name: str
    diffusivity: NonNegative


class Viscous(Equation):
    class Settings(Settings):
        kind: Literal["viscous"]
        viscosity: NonNegative
        hyperviscosity: Damping | None = None
        scalars: tuple[Scalar, ...] = ()


class Stratified(Equation):
    class Settings(Settings):
        kind: Literal["stratified"]
        viscosity: NonNegative
        stratification: Real = 1.0


class Vortex(Initial):
    class Settings(Settings):
        kind: Literal["vortex"] = "vortex"
        amplitude: Real = 1.0


class Python(Initial):
    class Settings(Settings):
        kind: Literal["python"]
        path: InputPath
        parameters: dict[str, Any] = Field(default_factory=dict)


class Driven(Forcing):
    class Settings(Settings):
        kind: Literal["driven"] = "driven"
        rate: Real = 0.1


class Stirred(Forcing):
    class Settings(Settings):
        kind: Literal["stirred"] = "stirred"


class RungeKutta4(Integrator):
    max_cfl: ClassVar = {"two_thirds": 1.5, "none": 1.0}


class RungeKutta2(Integrator):
    max_cfl: ClassVar = {"two_thirds": 0.75, "none": 0.4}


@pytest.fixture(scope="session")
def registries() -> Registries:
    return Registries(
        models={"viscous": Viscous, "stratified": Stratified},
        initials={"vortex": Vortex, "python": Python},
        forcings={"driven": Driven, "stirred": Stirred},
        integrators={"rk4": RungeKutta4, "rk2": RungeKutta2},
        particles=PARTICLES,
        terms=TERMS,
    )


@pytest.fixture(scope="module")
def config_class(registries: Registries) -> Iterator[type[RunConfig]]:
    """The class of these parts, which files are read as in the module's tests."""
    made = assemble(registries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.config.load.run_config_class", lambda words=None: made)
        yield made


Load = Callable[..., RunConfig]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config_class: type[RunConfig]) -> Load:
    """`load(text, *overrides)` reads `text` from run.yaml in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)

    def load(text: str, *overrides: str, check_files: bool = True) -> RunConfig:
        Path("run.yaml").write_text(text)
        return load_config("run.yaml", overrides, check_files=check_files)

    return load


@pytest.fixture
def refused(load: Load) -> Callable[..., list[str]]:
    """`refused(text, *overrides)` gives the lines of the refusal."""

    def refused(text: str, *overrides: str) -> list[str]:
        with pytest.raises(UserError) as caught:
            load(text, *overrides)
        return str(caught.value).splitlines()

    return refused


@pytest.fixture(scope="session")
def short() -> str:
    """The shortest file of a run."""
    return SHORT
