"""The model and the forcing of a configuration, on its transform."""

from math import isfinite
from typing import Any, cast

from simulator.config import RunConfig
from simulator.config.messages import mistakes_in
from simulator.config.run_config import check_fitting
from simulator.errors import UserError
from simulator.physics.forcing import FORCINGS, Forcing, Forcings
from simulator.physics.forcing.forcing import EquationForcing
from simulator.physics.models import MODELS, Equation
from simulator.physics.models.navier_stokes import sheared_frame
from simulator.physics.models.python_model import WrongParameters
from simulator.physics.models.tendency import coupled_fields
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping import INTEGRATORS
from simulator.physics.stepping.integrator import Multistep
from simulator.physics.terms import TERMS, Term
from simulator.simulation.inputs import Inputs
from simulator.simulation.placement import Placement, check_devices


def make_model(config: RunConfig, placement: Placement, inputs: Inputs) -> Equation:
    """The model that the block `model` describes. Raises UserError, with the place, if it cannot be
    made."""
    kind = MODELS[config.model.kind]
    try:
        model = kind.create(config.model, placement.transform, inputs)
    except UserError as error:
        key, _, message = str(error).partition(": ")
        if key.partition(".")[0] in type(config.model).model_fields:
            key = f"model.{key}"
        elif key != "grid.shape":
            key, message = "model", str(error)
        raise config.error(key, message) from error
    except WrongParameters as wrong:
        raise mistakes_in(wrong.error, wrong.settings, wrong.data, config.places) from None
    if kind.numerics.open:
        check_fitting(config, model)
        check_devices(config, "auto", equation=model)
    if sheared_frame(model) is not None:
        check_sheared(config)
    choose_waves(config, model)
    if config.terms:
        terms = [_term(config, model, inputs, index) for index in range(len(config.terms))]
        model.extension.add(model, terms)
    model.linear_growth.settle()
    if isinstance(largest := model.linear_growth.largest, float) and not isfinite(largest):
        problem = "linear and waves have to be finite for all modes, k = 0 among them"
        raise config.error("model", f"{model_name(config)}: {problem}")
    return model


def _term(config: RunConfig, model: Equation, inputs: Inputs, index: int) -> Term:
    settings = config.terms[index]
    with config.blaming(f"terms.{index}"):
        term: Term = TERMS[settings.kind](settings, model, cast(Any, inputs))
        term.check_end(config.time.stop)
        return term


def check_sheared(config: RunConfig) -> None:
    """Refuses what a box that a uniform shear carries along cannot hold."""
    if issubclass(INTEGRATORS[config.time.integrator], Multistep):
        problem = "carries rates from step to step, which a background shear turns"
        raise config.error("time.integrator", f"{config.time.integrator} {problem}; take rk4")
    if config.terms:
        problem = "stand still in the box, which model.shear carries along; leave one out"
        raise config.error("terms", f"terms {problem}")
    if config.time.waves == "exact":
        problem = "exact waves need wavenumbers that stay, and model.shear turns them"
        raise config.error("time.waves", f"{problem}; explicit")


def choose_waves(config: RunConfig, model: Equation) -> None:
    """Decides whether the integrator solves the waves of the model. Raises UserError if it cannot
    do so as the configuration demands."""
    waves = coupled_fields(model)
    wanted = config.time.waves
    if wanted == "exact" and not waves:
        problem = f"{model_name(config)} with these parameters has no waves to be exact about"
        raise config.error("time.waves", f"{problem}; leave the key out")
    able = INTEGRATORS[config.time.integrator].couples
    if wanted == "exact" and not able:
        problem = f"{config.time.integrator} takes no linear terms that couple fields"
        others = " or ".join(name for name, kind in INTEGRATORS.items() if kind.couples)
        raise config.error("time.waves", f"{problem}; explicit, or time.integrator: {others}")
    if (
        waves
        and able
        and sheared_frame(model) is None
        and (wanted or model.numerics.waves) == "exact"
    ):
        model.integrated = waves
        model.wave_frequency = 0.0


def model_name(config: RunConfig) -> str:
    """The kind of the model, or the class of a user's file."""
    settings = config.model
    return settings.equation if MODELS[settings.kind].numerics.open else settings.kind


OF_EQUATION = "equation"
"""The name of the force that an equation states itself."""


def make_forcings(config: RunConfig, model: Equation, inputs: Inputs) -> Forcings | None:
    """The forces that `forcing` describes and that of the equation; None without one. Raises
    UserError if the model cannot be forced."""
    if config.forcings and model.extension.unforced is not None:
        raise config.error("forcing", model.extension.unforced)
    forces: dict[str, Forcing] = {}
    for name, (key, settings) in config.forcings.items():
        with config.blaming(key):
            forces[name] = FORCINGS[settings.kind](settings, model, inputs)
            forces[name].number = len(forces) - 1
    if type(model).forcing is not Equation.forcing:
        if OF_EQUATION in forces:
            key, _ = config.forcings[OF_EQUATION]
            raise config.error(f"{key}.name", f"{OF_EQUATION} is the equation's own force")
        forces[OF_EQUATION] = EquationForcing(None, model, cast(Any, inputs))
    return Forcings(forces) if forces else None


def make_swarm(config: RunConfig, model: Equation, inputs: Inputs) -> Swarm:
    """The particles of a configuration. Raises UserError, with the place, if the model cannot carry
    them."""
    if config.particles and ("velocity" not in model.fields or model.numerics.split):
        problem = f"move with the velocity of a fluid, which {config.model.kind} does not evolve"
        raise config.error("particles", f"{problem}; navier_stokes, boussinesq and mhd do")
    if config.particles and sheared_frame(model) is not None:
        problem = "do not follow a background shear yet; leave them or model.shear out"
        raise config.error("particles", problem)
    if config.particles and model.transform.grid.dimensions < 3:
        problem = "move in three dimensions; [nx, ny, 1] makes a flow that does not depend on z"
        raise config.error("particles", problem)
    with config.blaming("particles"):
        return Swarm(config.particles, model, cast(Any, inputs))
