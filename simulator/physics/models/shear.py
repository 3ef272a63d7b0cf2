"""A uniform background shear flow U = S x e_y, in the frame that it carries along.

Of a flow U + u and a magnetic field b, with waves whose k turns as dk_x/dt = -S k_y:

du/dt = N(u) - S u_x e_y - grad p,  db/dt = N(b) + S b_x e_y,  k . u = k . b = 0.

With rotation Omega e_z and S = -q Omega this is the shearing box. The gradient of p keeps k . u at
zero while k turns: du/dt = P[N(u) - 2 S u_x e_y] + S u_x e_y. Rogallo, NASA Technical Memorandum 81315
(1981); Hawley, Gammie & Balbus, Astrophys. J. 440, 742 (1995)."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeVar

import jax.numpy as jnp

from simulator.physics.models.fields import Fields
from simulator.physics.models.flow_extension import FlowExtension
from simulator.physics.models.limits import Advective
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.spectral.arrays import Number, OverPoints, PointValues
from simulator.spectral.sheared import LARGEST_TILT

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation
    from simulator.physics.models.navier_stokes import NavierStokes


Flow = TypeVar("Flow", bound="NavierStokes")


class ShearedAdvective(Advective):
    """`Advective` at the points of a frame with the largest tilt: the velocity along y is there u_y
    + tilt L_y / L_x u_x."""

    def maxima(self, model: Equation, values: PointValues) -> dict[str, OverPoints]:
        maxima = super().maxima(model, values)
        grid = model.transform.grid
        velocity = model.advection(values)
        assert velocity is not None
        turned = LARGEST_TILT * grid.seen(grid.shape)[1] / grid.seen(grid.box)[0]
        return {"rate": maxima["rate"] + turned * abs(velocity[0])}


class ShearProduction(Observable["NavierStokes"]):
    """`shear_production`: the energy per time that the background flow gives to the fluctuations."""

    def columns(self, model: NavierStokes, fields: Fields, row: Row) -> Columns:
        return {"shear_production": production(model, fields)}


def production(model: NavierStokes, fields: Fields) -> Number:
    """S <b_x b_y - u_x u_y>, the work of the Maxwell and the Reynolds stress."""
    assert model.sheared is not None
    signs = {"velocity": -1, "magnetic": 1}
    vectors = ((sign, fields[name]) for name, sign in signs.items() if name in fields)
    inner = model.transform.layout.inner
    return model.sheared.rate * jnp.asarray(sum(sign * inner(v[0], v[1]) for sign, v in vectors))


def follow_shear(model: NavierStokes, shear: float) -> None:
    """Lets dt, forces and output of a flow follow the background shear (1/time)."""
    model.wave_frequency += abs(shear)
    model.extension = FlowExtension(
        unforced="stands still in the box, which model.shear carries along; leave one out"
    )
    model.step_limit = ShearedAdvective()
    model.has = (*model.has, ShearProduction())


def turned(model: Flow, time: Number | float, since: Number | float | None) -> Flow:
    """A flow with its wavenumbers at a time, unless it is turned already; for `since` see
    `Equation.at`."""
    frame = model.sheared
    if frame is None or model.transform is not frame.transform:
        return model
    other = copy(model)
    other.transform = frame.at(time, since)
    return other
