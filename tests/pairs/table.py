"""The table of parts that the pairwise cover combines, and the layouts that every case runs on.

A factor has levels by name; a level is a fragment of a configuration, or a function that makes one
from the fragments of the factors above it. The first level of a factor is its default, which asks
for nothing. Every part of every registry is a level
(`test_every_registered_part_is_in_the_table`)."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from plugin_parts import absent_plugin

import simulator
from simulator.measure import KINDS
from simulator.physics.initial import INITIALS
from simulator.physics.terms import TERMS

Fragment = Mapping[str, Any]
Level = Fragment | Callable[[dict[str, Any]], Fragment]
Case = dict[str, str]
"""A level for each factor whose level is not its default."""

CODE = '''
import jax.numpy as jnp

from simulator.equations import Equation, Field, SplitEquation


class Reaction(Equation):
    """u_t = D lap u - u v^2 + f (1 - u), v_t = D lap v + u v^2 - (f + k) v in any number of dimensions."""

    evolved = ("u", "v")
    diffusivity: float = 0.02
    feed: float = 0.04

    def linear(self):
        return {"u": -self.diffusivity * self.k_squared - self.feed, "v": -self.diffusivity * self.k_squared - 0.1}

    def products(self, values):
        reaction = values["u"] * values["v"] ** 2
        return {"u": self.feed - reaction, "v": reaction}


class Waves(SplitEquation):
    """i psi_t = -lap psi / 2 + g |psi|^2 psi."""

    evolved = (Field("psi", complex=True),)
    interaction: float = 1.0

    def linear(self):
        return {"psi": -0.5j * self.k_squared}

    def flow(self, values, points, time, duration):
        psi = values["psi"]
        return {"psi": psi * jnp.exp(-1j * self.interaction * abs(psi) ** 2 * duration)}


def fields(*points, names=()):
    x, y = (*points, 0.0)[:2]
    scalar = 1 + 0.3 * jnp.sin(2 * jnp.pi * x / LX) * jnp.cos(2 * jnp.pi * y / LY) + 0 * sum(points)
    vector = (jnp.sin(2 * jnp.pi * y / LY) + 0 * sum(points), 0.5 * jnp.cos(2 * jnp.pi * x / LX) + 0 * sum(points))
    vector += (0 * scalar,)[: len(points) - 2]
    return {name: vector if name in ("velocity", "magnetic") else scalar for name in names}


def force(*points, name="velocity"):
    *points, time = points
    x, y = (*points, 0.0)[:2]
    scalar = 0.1 * jnp.cos(2 * jnp.pi * y / LY + time) + 0 * sum(points)
    return {name: (scalar,) + (0 * scalar,) * (len(points) - 1) if name in ("velocity", "momentum") else scalar}


def particles(id):
    places = [(id * step) % 1.0 for step in (0.6180339887, 0.7548776662, 0.5698402910)]
    return {"position": jnp.stack([p * length for p, length in zip(places, (LX, LY, LZ))]), "mass": 1 + 0 * places[0],
            "velocity": jnp.stack([0.1 * jnp.sin(6 * p) for p in places])}


def places(id):
    return {"position": particles(id)["position"][:DIMENSIONS]}


def potential(*points):
    return 0.1 * jnp.cos(2 * jnp.pi * points[0] / LX) + 0 * sum(points)


def stress(velocity, gradient, width):
    strain = (gradient + jnp.swapaxes(gradient, 0, 1)) / 2
    tau = -2 * (0.1 * width) ** 2 * jnp.sqrt(2 * (strain**2).sum((0, 1))) * strain
    return tau[0, 0], tau[1, 1], tau[2, 2], tau[0, 1], tau[0, 2], tau[1, 2]


def flux(velocity, gradient, scalar, scalar_gradient, width):
    return list(-0.01 * width**2 * scalar_gradient)


def rub(values, points, time):
    name = "velocity" if "velocity" in values else next(iter(values))
    return {name: -jnp.cos(jnp.pi * points.x / LX - 2 * jnp.pi * points.y / LY) ** 2 * (1 + time) * values[name]}


def moments(fields, time):
    name = next(iter(fields))
    return {"mean": (abs(fields[name]) ** 2).mean(), "doubled": 2 * time}
'''
"""The user's file of every case, after a line with the lengths of its box."""
PATH = "parts.py"

FLOWS = ("navier_stokes", "boussinesq", "mhd")
COUNTS = {(8, 8, 8): 125, (16, 10, 9): 128, (16, 12): 120, (24,): 24}
"""Particles of each kind that fill a lattice, by the grid."""

_GAS = {"kind": "self_gravitating_gas", "sound_speed": 1.0, "viscosity": 0.02}
_GAS |= {
    "background_density": 1.0,
    "max_edge_energy": 1.0,
}  # on eight points everything is near the edge
_WAVES = {"kind": "schrodinger_poisson", "hbar_over_m": 0.5}
_DARK = {"kind": "particles", "name": "dark", "count": 125}


def _matter(*components: Fragment) -> Fragment:
    return {
        "model": {
            "kind": "composite",
            "gravitational_constant": 0.1,
            "components": list(components),
        }
    }


def _of_components(**keys: Any) -> Callable[[dict[str, Any]], Fragment]:
    """Keys of each particle component."""

    def fragment(config: dict[str, Any]) -> Fragment:
        parts = config["model"].get("components", ())
        changed = [p | keys if p["kind"] == "particles" else p for p in parts]
        # A model without particles refuses the first key.
        return {"model": {"components": changed} if parts else dict(list(keys.items())[:1])}

    return fragment


def _counted(config: dict[str, Any], count: int) -> Fragment:
    return _of_components(count=count)(config) if "components" in config["model"] else {}


def _expanding(config: dict[str, Any]) -> Fragment:
    """An expanding background, in which gas has to have the exponent 5/3."""
    keys: dict[str, Any] = {"cosmology": {"start": 0.1, "matter": 1.0}}
    if parts := config["model"].get("components"):
        exponent = {"self_gravitating_gas": {"polytropic_exponent": 5 / 3}}
        keys["components"] = [part | exponent.get(part["kind"], {}) for part in parts]
    return {"model": keys}


def _cosmological(config: dict[str, Any]) -> Fragment:
    start = _start("cosmological", amplitude=0.1, index=-2, seed=1)(config)
    return start if "cosmology" in config["model"] else {**_expanding(config), **start}


def _dye(config: dict[str, Any]) -> Fragment:
    gradient = [1.0, 0.5, 0.2][: len(config["grid"]["shape"])]
    return _model_keys(scalars=[{"name": "dye", "diffusivity": 0.02, "mean_gradient": gradient}])


def _model_keys(**keys: Any) -> Fragment:
    return {"model": keys}


def _start(kind: str, **keys: Any) -> Callable[[dict[str, Any]], Fragment]:
    """A start, or in a composite the start of each component that has such a start."""

    def fragment(config: dict[str, Any]) -> Fragment:
        model = config["model"]
        start = {"kind": kind, **keys}
        if model["kind"] == "composite":
            return {
                "initial": {"kind": "composite", "components": _starts(model["components"], start)}
            }
        if kind in ("random", "taylor_green", "abc") and model["kind"] == "mhd":
            start["magnetic"] = {"energy": 0.1, "peak": 2}
        scalars = [s["name"] for s in model.get("scalars", ())]
        if kind in ("random", "taylor_green", "abc") and scalars:
            start["scalars"] = {name: {"variance": 0.5, "peak": 2} for name in scalars}
        if kind == "random" and model["kind"] in ("python", "schrodinger_poisson"):
            start = {
                "kind": kind,
                "fields": {name: {"variance": 0.1, "peak": 2} for name in _evolved(config)},
            }
        if kind == "python":
            start |= {"path": PATH, "function": "fields", "parameters": {"names": _evolved(config)}}
        return {"initial": start}

    return fragment


_GAS_ONLY = ("self_gravitating_gas",)
_WAVES_ONLY = ("schrodinger_poisson",)
_PARTS = {
    "soliton": _WAVES_ONLY,
    "soliton_merger": _WAVES_ONLY,
    "zeldovich_wave": (*_GAS_ONLY, "particles"),
    "cosmological": (*_WAVES_ONLY, "particles"),
    "random": _GAS_ONLY,
    "taylor_green": _GAS_ONLY,
    "abc": _GAS_ONLY,
    "python": ("particles",),
}
"""The kinds of components that have a start, of the starts that not all have."""


def _starts(components: list[dict[str, Any]], start: dict[str, Any]) -> dict[str, Any]:
    """By component; where others have such a start, those that have none are uniform."""
    fit = [part["kind"] in _PARTS.get(start["kind"], (part["kind"],)) for part in components]
    found = {}
    for part, fits in zip(components, fit, strict=True):
        name = {"self_gravitating_gas": "gas", "schrodinger_poisson": "waves"}.get(
            part["kind"], part.get("name")
        )
        own = start | ({"path": PATH, "function": "particles"} if start["kind"] == "python" else {})
        found[name] = own if fits or not any(fit) else {"kind": "uniform"}
    return found


def _evolved(config: dict[str, Any]) -> list[str]:
    model = config["model"]
    by_kind = {
        "navier_stokes": ["velocity"],
        "boussinesq": ["velocity", "buoyancy"],
        "mhd": ["velocity", "magnetic"],
        "self_gravitating_gas": ["density", "velocity"],
        "schrodinger_poisson": ["psi"],
        "python": ["psi"] if model.get("equation") == "Waves" else ["u", "v"],
    }
    return by_kind.get(model["kind"], []) + [s["name"] for s in model.get("scalars", ())]


def _force(config: dict[str, Any]) -> Fragment:
    name = "u" if config["model"]["kind"] == "python" else "velocity"
    return {
        "forcing": {
            "kind": "python",
            "path": PATH,
            "function": "force",
            "parameters": {"name": name},
        }
    }


def _several_forces(config: dict[str, Any]) -> Fragment:
    """Two random forces of one seed and a force along the field."""
    model = config["model"]
    name = {"python": "u", "mhd": "magnetic"}.get(model["kind"], "velocity")
    noise = {"kind": "ornstein_uhlenbeck", "field": name, **_ORNSTEIN_UHLENBECK}
    field = model.get("scalars", [{"name": name}])[0]["name"]
    along = {"kind": "linear", "field": field, "coefficient": 0.1}
    return {"forcing": [noise, {**noise, "name": "other"}, along]}


def _sheared(config: dict[str, Any]) -> Fragment:
    """A background shear, with a rotation about z if there is one."""
    turned = {"rotation": [0.0, 0.0, 1.0]} if "rotation" in config["model"] else {}
    return _model_keys(shear=-0.5, **turned)


def _exact_waves(config: dict[str, Any]) -> Fragment:
    """Exact waves, of which `navier_stokes` has none without rotation."""
    still = config["model"]["kind"] == "navier_stokes" and "rotation" not in config["model"]
    turned = _model_keys(rotation=[0.1, 0.2, 1.0]) if still else {}
    return {"time": {"waves": "exact"}, **turned}


def _first(config: dict[str, Any]) -> tuple[str, Any]:
    """A field on which terms act, and a value of it."""
    name = "u" if config["model"]["kind"] == "python" else "velocity"
    return name, 0.5 if name == "u" else [0.1, 0.2, 0.3][: len(config["grid"]["shape"])]


def _body(config: dict[str, Any]) -> Fragment:
    """A ball, with its force if it is in a flow."""
    name, value = _first(config)
    center = [2.0, "2 + 0.1*t", 2.0][: len(config["grid"]["shape"])]
    mask = {"kind": "sphere", "center": center, "radius": 1.0}
    term = {"name": "ball", "kind": "relax", "relaxation_time": 0.2, "mask": mask}
    target = value if name == "u" else "body"
    return {"terms": [{**term, "target": {name: target}, "forces": name != "u"}]}


def _layer(config: dict[str, Any]) -> Fragment:
    """A layer of all fields, and one more term everywhere."""
    name, value = _first(config)
    axis = "x" if len(config["grid"]["shape"]) == 1 else "y"
    mask = {"kind": "half_space", "axis": axis, "below": 1.5, "smoothing": 1.0}
    layer = {"name": "layer", "kind": "relax", "relaxation_time": 0.2, "mask": mask}
    wind = {"name": "wind", "kind": "relax", "relaxation_time": 1.0, "target": {name: value}}
    return {"terms": [{**layer, "target": {name: value}}, wind]}


def _species(*species: dict[str, Any]) -> Callable[[dict[str, Any]], Fragment]:
    def fragment(config: dict[str, Any]) -> Fragment:
        count = COUNTS[tuple(config["grid"]["shape"])]
        return {"particles": [{"name": keys["kind"], "count": count, **keys} for keys in species]}

    return fragment


def _trap(config: dict[str, Any]) -> Fragment:
    frequency = [0.5] * len(config["grid"]["shape"])
    absorber = {"width": 0.5, "rate": 1.0}
    return _model_keys(
        external_potential={"kind": "harmonic", "frequency": frequency}, absorber=absorber
    )


def _outputs(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a kind of series needs beside its schedule."""
    axes = len(config["grid"]["shape"])
    through = [0.3, 0.4, 0.5][:axes]
    return {
        "spectral_maps": {"axis": "xyz"[axes - 1]},
        "probes": {
            "points": [through],
            "lines": [{"name": "across", "axis": "xyy"[axes - 1], "through": through}],
        },
        "python": {"path": PATH, "function": "moments"},
        "lightcone": {"speed_of_light": 10.0},
        "render": {"size": [32, 24]}
        | ({"field": "u"} if config["model"].get("equation") == "Reaction" else {}),
    }


def _output(name: str) -> Callable[[dict[str, Any]], Fragment]:
    def fragment(config: dict[str, Any]) -> Fragment:
        found: dict[str, Any] = {
            "output": {name: {"every_steps": 2, **_outputs(config).get(name, {})}}
        }
        if name == "lightcone" and "cosmology" not in config["model"]:
            found |= _expanding(config)
        if (
            name in _OF_PARTICLES
            and config["model"]["kind"] in FLOWS
            and not config.get("particles")
        ):
            found |= _species({"kind": "tracer"})(config)
        return found

    return fragment


def _volume(config: dict[str, Any]) -> Fragment:
    """Nothing, but in one dimension, which has no volume, the output that is refused there."""
    return _output("render")(config) if len(config["grid"]["shape"]) == 1 else {}


_OF_PARTICLES = ("particle_statistics", "pair_correlation", "trajectories")


_PLACES = {"kind": "python", "path": PATH, "function": "places"}
_ORNSTEIN_UHLENBECK = {"rate": 0.1, "correlation_time": 0.1, "band": [1, 2]}

INTEGRATORS = (
    "rk4",
    "rk3",
    "rk2",
    "etdrk4",
    "drift_kick_drift",
    "kick_drift_kick",
    "composition4",
    "composition6",
)


def _growing(name: str) -> Level:
    own = {"time": {"integrator": name}}
    return lambda config: own if "cosmology" in config["model"] else {**own, **_expanding(config)}


FACTORS: dict[str, dict[str, Level]] = {
    "model": {
        "navier_stokes": _model_keys(kind="navier_stokes", viscosity=0.02),
        "boussinesq": _model_keys(
            kind="boussinesq", viscosity=0.02, diffusivity=0.02, stratification=1.0
        ),
        "mhd": _model_keys(kind="mhd", viscosity=0.02, resistivity=0.02),
        "self_gravitating_gas": {"model": _GAS | {"gravitational_constant": 0.1}},
        "schrodinger_poisson": {"model": _WAVES | {"gravitational_constant": 0.1}},
        "composite": _matter(*(c for c in (_GAS, _WAVES, _DARK) if absent_plugin(c) is None)),
        "particles": _matter(_DARK),
        "python": _model_keys(kind="python", path=PATH, equation="Reaction"),
        "python_split": {
            "model": {"kind": "python", "path": PATH, "equation": "Waves"},
            "grid": {"dealias": "none"},
            "time": {"integrator": "kick_drift_kick"},
        },
    },
    "grid": {
        "cube": {"grid": {"shape": [8, 8, 8]}},
        "long": lambda config: {
            "grid": {"shape": [16, 10, 9], "box": [8.0, 4.0, 4.0]},
            **_counted(config, 128),
        },
        "plane": {"grid": {"shape": [16, 12], "box": [6.0, 5.0]}},
        "line": {"grid": {"shape": [24], "box": [6.0]}},
    },
    "scalars": {"none": {}, "dye": _dye},
    "damping": {
        "none": {},
        "hyperviscosity": _model_keys(hyperviscosity={"order": 2, "coefficient": 1e-4}),
    },
    "drag": {"none": {}, "drag": _model_keys(drag={"coefficient": 0.1, "below": 1.5})},
    "rotation": {"none": {}, "rotation": _model_keys(rotation=[0.1, 0.2, 1.0])},
    "shear": {"none": {}, "shear": _sheared},
    "waves": {"usual": {}, "exact": _exact_waves},
    "hall": {"none": {}, "hall": _model_keys(ion_length=0.1)},
    "background": {
        "static": {},
        "expanding": _expanding,
        "trap": _trap,
        "own_potential": _model_keys(
            external_potential={"kind": "python", "path": PATH, "function": "potential"}
        ),
    },
    "green": {"exact": {}, "finite_difference": _model_keys(green="finite_difference")},
    "assignment": {
        "tsc": {},
        "interlaced": _of_components(interlacing=True, assignment="cic"),
        "reproducible": _of_components(reproducible=True, assignment="pcs", arrangement="glass"),
    },
    "subgrid": {
        "none": {},
        "smagorinsky": lambda config: _model_keys(
            subgrid={"kind": "smagorinsky"}
            | ({"resistive_coefficient": 0.1} if config["model"]["kind"] == "mhd" else {})
        ),
        "dynamic_smagorinsky": _model_keys(subgrid={"kind": "dynamic_smagorinsky"}),
        "spectral": _model_keys(subgrid={"kind": "spectral"}),
        "python": _model_keys(
            subgrid={"kind": "python", "path": PATH, "function": "stress", "flux": "flux"}
        ),
    },
    "initial": {
        "own": lambda config: {"initial": _own_start(config)},
        "taylor_green": _start("taylor_green"),
        "abc": _start("abc"),
        "random": _start("random", peak=2, seed=1),
        "orszag_tang": _start("orszag_tang"),
        "snapshot": {"initial": {"kind": "snapshot", "path": "source/snapshots/00000002"}},
        "python": _start("python"),
        "uniform": _start("uniform"),
        "jeans_wave": _start("jeans_wave", amplitude=0.01),
        "zeldovich_wave": _start("zeldovich_wave"),
        "cosmological": _cosmological,
        "soliton": _start("soliton", core_radius=0.8),
        "soliton_merger": _start("soliton_merger", count=2, core_radius=[0.7, 0.9]),
    },
    "forcing": {
        "none": {},
        "linear": {"forcing": {"kind": "linear", "coefficient": 0.1}},
        "constant_power": {"forcing": {"kind": "constant_power", "rate": 0.1}},
        "ornstein_uhlenbeck": {"forcing": {"kind": "ornstein_uhlenbeck", **_ORNSTEIN_UHLENBECK}},
        "kolmogorov": {"forcing": {"kind": "kolmogorov", "amplitude": 0.1}},
        "taylor_green": {"forcing": {"kind": "taylor_green", "amplitude": 0.1}},
        "abc": {"forcing": {"kind": "abc", "amplitude": 0.1}},
        "python": _force,
        "several": _several_forces,
    },
    "terms": {
        "none": {},
        "body": _body,
        "layer": _layer,
        "python": {"terms": [{"name": "rub", "kind": "python", "path": PATH, "function": "rub"}]},
        "viscosity": lambda config: {
            "terms": [
                {
                    "name": "mixing",
                    "kind": "viscosity",
                    "coefficients": {(_evolved(config) or ["velocity"])[0]: "0.01*(1 + cos(x))"},
                }
            ]
        },
    },
    "integrator": {
        name: ({"time": {"integrator": name}} if name else {}) for name in ("", *INTEGRATORS)
    }
    | {name: _growing(name) for name in ("bullfrog", "fastpm")},
    "step": {
        "fixed": {"time": {"dt": 0.01}},
        "chosen": {"time": {"cfl": 0.02, "max_dt": 0.02}},
        "error": {"time": {"error": 1e-4, "max_dt": 0.02}},
    },
    "dealias": {
        name: ({"grid": {"dealias": name}} if name else {})
        for name in ("", "two_thirds", "spherical", "phase_shift", "none")
    },
    "precision": {"double": {}, "single": {"precision": "single"}},
    "memory": {"auto": {}, "low": {"run": {"memory": "low"}}},
    "exchange": {name: {"fft": {"exchange": name}} for name in ("full", "single", "half_scaled")},
    "species": {
        "none": {},
        "tracer": _species({"kind": "tracer"}),
        "inertial": _species({"kind": "inertial", "relaxation_time": 0.5, "start": "lattice"}),
        "both": _species(
            {"kind": "tracer", "interpolation": "linear", "start": _PLACES},
            {
                "kind": "inertial",
                "interpolation": "linear",
                "relaxation_time": 0.1,
                "density_ratio": 10.0,
            },
        ),
    },
    "snapshots": {
        "plain": {},
        "gzip": {"output": {"compression": "gzip"}},
        "blosc2": {"output": {"compression": "blosc2"}},
        "narrow": {"output": {"snapshots": {"precision": "single"}}},
        "rounded": {"output": {"snapshots": {"error": 1e-3}}},
    },
    "after": {
        name: {}
        for name in (
            "",
            "plot",
            "report",
            "render",
            "analyze",
            "sweep",
            "batch",
            "gradient",
            "ensemble",
            "variational",
        )
    }
    | {"render": _volume},
} | {f"output.{name}": {"": {}, "on": _output(name)} for name in KINDS}
# Some levels belong to plugins, which may be absent.
if not hasattr(simulator, "differentiate"):
    FACTORS["after"].pop("gradient")
FACTORS["model"] = {n: level for n, level in FACTORS["model"].items() if not absent_plugin(level)}
FACTORS["initial"] = {
    name: level for name, level in FACTORS["initial"].items() if name in ("own", *INITIALS)
}
_KINDS = {"body": "relax", "layer": "relax"}
FACTORS["terms"] = {
    name: level
    for name, level in FACTORS["terms"].items()
    if _KINDS.get(name, name) in ("none", *TERMS)
}


def _own_start(config: dict[str, Any]) -> Fragment:
    """The start of a case that asks for none: one that its model has."""
    kind = config["model"]["kind"]
    if kind in (*FLOWS, "python"):
        return _start("random", peak=2, seed=1)(config)["initial"]
    start = (
        _start("jeans_wave", amplitude=0.01)
        if kind == "schrodinger_poisson"
        else _start("zeldovich_wave")
    )
    return start(config)["initial"]


ASSIMILATIONS: dict[str, Fragment] = {
    "ensemble": {"members": 4},
    "variational": {"windows": 1, "iterations": 2, "hessian_products": 4},
}
"""The smallest search of each method of assimilation."""
ERROR = 0.01
"""Standard deviation of observed values."""


def assimilation(case: Case) -> dict[str, Any]:
    """The assimilation after a case's run, in which every field that evolves is uncertain."""
    named = _evolved(configuration(case)) or ["density"]
    uncertain = [
        "momentum" if name == "velocity" and "density" in named else name for name in named
    ]
    return {
        "base": "case.yaml",
        "method": case["after"],
        "observations": [{"table": "observed.npz", "error": ERROR}],
        "background": {"spectrum": dict.fromkeys(uncertain, "prior.txt"), "mean": "initial"},
        **ASSIMILATIONS[case["after"]],
    }


LAYOUTS = ((1, 1, 1), (1, 2, 1), (1, 4, 1), (2, 2, 1), (2, 4, 1), (1, 1, 2))
"""(processes, devices in all of them, threads of each device); the first is the reference."""
STEPS = 4
MIDDLE = 2


def default(factor: str) -> str:
    return next(iter(FACTORS[factor]))


def _merge(config: dict[str, Any], fragment: Fragment) -> None:
    for key, value in fragment.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), dict):
            _merge(config[key], value)
        else:
            config[key] = deepcopy(value)


def configuration(case: Case) -> dict[str, Any]:
    """The configuration of a case, complete but for its folder and its devices."""
    config: dict[str, Any] = {
        "name": "case",
        "time": {"stop": 1.0, "max_steps": STEPS},
        "output": {
            "diagnostics": {"every_steps": 1},
            "spectra": {
                "every_steps": MIDDLE
            },  # a row is taken at the end too, where a run is halted
            "snapshots": {"every_steps": MIDDLE},
            "checkpoints": {"every_steps": MIDDLE, "keep_last": 9},
        },
        "devices": {"platform": "cpu"},
    }
    for factor, levels in FACTORS.items():
        level = levels[case.get(factor, default(factor))]
        _merge(config, level(config) if callable(level) else level)
    return config


def user_file(config: dict[str, Any]) -> str:
    """The text of the case's Python file."""
    box = config["grid"].get("box", [6.283185307179586] * len(config["grid"]["shape"]))
    lengths = "".join(
        f"{name} = {length!r}\n"
        for name, length in zip(("LX", "LY", "LZ"), [*box, 1.0, 1.0], strict=False)
    )
    return f"{lengths}DIMENSIONS = {len(box)}\n{CODE}"


def named(case: Case) -> str:
    """One line: factor=level, in the order of the table; defaults are left out, but for the
    model."""
    return " ".join(
        f"{f}={case[f]}" for f in FACTORS if f in case and (f == "model" or case[f] != default(f))
    )


def parsed(line: str) -> Case:
    return dict(word.split("=") for word in line.split())
