"""Names that users may give to fields, terms, forces and particles."""

from collections.abc import Callable

from pydantic import AfterValidator

from simulator.errors import shown

_OF_MODELS = """
velocity magnetic buoyancy density momentum psi vorticity vorticity_magnitude current current_magnitude
pressure potential speed dissipation_rate energy kinetic_energy magnetic_energy potential_energy lorentz
induction buoyancy_flux longitudinal_gradient transverse_gradient viscous ohmic drag subgrid stress force emf
strain gradient Q R
"""
_OF_TABLES = "step time dt cfl x y z k r r_outer sigma contrast axis"
RESERVED = frozenset(f"{_OF_MODELS} {_OF_TABLES}".split())
"""Names of fields, spectra and quantities of some model, of coordinates of tables and series, and
of products that are computed at points. `viscous`, `ohmic`, `drag`, `subgrid`: columns
`NAME_dissipation`."""


def is_word(name: str) -> bool:
    """Whether `name` may name columns, files and their data sets, which are ASCII."""
    return name.isascii() and name.isidentifier() and len(name) <= 64


def free_name(name: str) -> bool:
    """Whether `name` may name fields, too. Names of carried arrays begin with
    `memory_`, `history_` and `series_`, quantities of histograms end with `_deviation` and
    `_gradient`, a scalar's loss to a closure with `_subgrid`, and fields made from a scalar as in
    `observables.scalars`."""
    endings = ("_deviation", "_gradient", "_subgrid", "_gradient_magnitude", "_dissipation_rate")
    taken = (
        name.startswith(("memory", "history", "series"))
        or name.endswith(endings)
        or name in RESERVED
    )
    return is_word(name) and not taken


def naming(what: str, allowed: Callable[[str], bool] = free_name) -> AfterValidator:
    """Validates a name. `what`: the end of the message NAME cannot name ..."""

    def check(name: str) -> str:
        if not allowed(name):
            raise ValueError(f"{shown(name)} cannot name {what}")
        return name

    return AfterValidator(check)
