"""An ensemble transform Kalman filter: at every time of observations the members of an ensemble are
combined anew.

With the deviations X' of m members from their mean x, those of (H(state) - y) / error from their
mean d, Y', and the inflation rho of the variance, A = ((m - 1) / rho + Y' Y'^T)^(-1) in the space
of the members. Member i becomes x + sum over j of X'_j (w_j + W_ji), where w = -A Y' d and W = ((m
- 1) A)^(1/2) is symmetric (Hunt, Kostelich & Szunyogh, Physica D 230, 112 (2007)). By default rho
is chosen so that spread and noise explain the mean square of d (Wang & Bishop, J. Atmos. Sci. 60,
1140 (2003)).

Localization: the weights of observations fall to zero at a radius (Gaspari & Cohn, Q. J. R.
Meteorol. Soc. 125, 723 (1999), eq. 4.10), since few members span few directions; w and W are
computed on a lattice and interpolated linearly (Yang et al., ibid. 135, 251 (2009))."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.errors import RunFailure
from simulator.physics.models import Fields, State
from simulator.plugins.assimilation.background import Prior
from simulator.plugins.assimilation.observations import Data, Observed
from simulator.plugins.assimilation.search import Search
from simulator.simulation.initial_state import without_divergence
from simulator.spectral.random import Stream

_PER_RADIUS = 3  # Points of the lattice of weights in a radius of localisation.


@dataclass(frozen=True)
class Members:
    """The members, whose arrays have a leading axis, after `done` times of observations."""

    members: State
    done: int


class Filter(Search[Members]):
    """Members that run from observation to observation."""

    shown = -1

    def __init__(
        self,
        observed: Sequence[Observed],
        background: Prior,
        members: int = 40,
        inflation: float | None = None,
        radius: float | None = None,
    ):
        super().__init__(observed, background)
        self.number_of_members = members
        self._inflation = inflation
        self._radius = radius or min(self.simulation.grid.seen(self.simulation.grid.box)) / 3

    def first(self) -> Members:
        """Members drawn from the prior, the same on any number of devices."""

        def drawn(number: jax.Array, mean: Fields, root: Fields) -> State:
            background = replace(self.background, mean=mean, root=root)
            return self.started(background.drawn(Stream.MEMBER, number), mean, root)

        draw = jax.jit(drawn)
        prior = (self.background.mean, self.background.root)
        numbers = np.arange(self.number_of_members)
        return self.loaded(
            self.simulation.stack([jax.block_until_ready(draw(n, *prior)) for n in numbers]),
            {"done": 0},
        )

    def template(self) -> State:
        """The names, shapes and types of the members."""
        one = jax.eval_shape(
            lambda: self.started(
                self.background.drawn(Stream.MEMBER, 0),
                self.background.mean,
                self.background.root,
            )
        )
        return jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((self.number_of_members, *a.shape), a.dtype), one
        )

    def stored(self, at: Members) -> tuple[State, dict[str, int]]:
        return at.members, {"done": at.done}

    def loaded(self, state: State, numbers: Mapping[str, Any]) -> Members:
        return Members(self.simulation.placed(state), numbers["done"])

    def is_finished(self, at: Members) -> bool:
        return at.done == len(self.steps)

    def next(self, at: Members) -> tuple[Members, dict[str, float], str]:
        """The members after the next observations, their row of the history, and the line about it.
        Raises RunFailure if a member is not finite."""
        steps, last = self.segments(int(self.steps[-1]))[at.done]
        time = self.simulation.first_time + last * self.dt
        members, row = jax.block_until_ready(
            self._forecast(at.members, np.int64(steps), self.data(last))
        )
        if not np.isfinite(row["forecast"]):
            raise RunFailure(
                f"a member is not finite at t = {time:g}; a smaller time.dt or background may help"
            )
        weights = self._weights(np.asarray(row["off"]), float(row["inflation"]))
        members, misfit = jax.block_until_ready(self._analysis(members, weights, self.data(last)))
        numbers = {name: float(row[name]) for name in ("forecast", "expected")}
        row = {
            "time": time,
            **numbers,
            "misfit": float(misfit),
            "inflation": float(row["inflation"]),
        }
        before = f"misfit {row['forecast']:.4g} (expected {row['expected']:.4g})"
        said = f"time {at.done + 1} of {len(self.steps)}, t = {time:.4g}: {before}, "
        said += f"{row['misfit']:.4g} after the analysis"
        return Members(members, at.done + 1), row, said

    def recovered(self, at: Members, say: Callable[[str], None]) -> tuple[State, dict[str, Any]]:
        """The mean of the members, and the result: spectra of the mean, of the prior and of the
        members' spread."""
        mean, spread = jax.jit(_moments)(at.members.fields)
        state = replace(jax.tree.map(lambda a: a[0], at.members), fields=mean)
        result: dict[str, Any] = self.spectra(mean)
        for name in self.background.root:
            result[f"posterior_{name}"] = np.asarray(
                jax.block_until_ready(self.shells(name, spread[name]))
            )
        return self.simulation.placed(state), result

    def _off(self, members: State, data: Data) -> jax.Array:
        """(H(state) - y) / error of every member, (member, value)."""
        seen = [jax.vmap(one.operator)(members) for one in self.observed]
        return jnp.concatenate(
            [(h - y) * w for h, (y, w) in zip(seen, data, strict=True)], 1
        ).astype(jnp.float64)

    @cached_property
    def _places(self) -> Any:
        everywhere = self.simulation.transform.layout.everywhere
        return self.simulation.shardings(self.template()), everywhere

    @cached_property
    def _forecast(self) -> Any:
        """The compiled function (members, number of steps, data) -> the members later, and `off`,
        the mean squares `forecast` of its mean and `expected` from spread and noise, and
        `inflation`."""

        def forecast(
            members: State, steps: jax.Array, data: Data
        ) -> tuple[State, dict[str, jax.Array]]:
            step = jax.vmap(lambda state: self.simulation.step(state, self.dt))
            members = lax.fori_loop(0, steps, lambda _, states: step(states), members)
            off = self._off(members, data)
            number = sum((w > 0).sum() for _, w in data)
            square = (off.mean(0) ** 2).sum()
            spread = off.var(0, ddof=1).sum()
            rho = jnp.maximum((square - number) / jnp.maximum(spread, 1e-300), 1)
            rho = rho if self._inflation is None else jnp.float64(self._inflation)
            number = jnp.maximum(number, 1)
            row = {
                "off": off,
                "forecast": square / number,
                "expected": 1 + spread / number,
                "inflation": rho,
            }
            return members, row

        return jax.jit(forecast, out_shardings=self._places)

    @cached_property
    def _analysis(self) -> Any:
        """The compiled function (members, weights, data) -> the combined members, and the mean
        square of (H - y) / error of their mean."""

        def analysis(members: State, weights: np.ndarray, data: Data) -> tuple[State, jax.Array]:
            def mixed(fields: Fields) -> Fields:
                return {name: self._mixed(name, field, weights) for name, field in fields.items()}

            history = {label: mixed(fields) for label, fields in members.history.items()}
            members = replace(members, fields=mixed(members.fields), history=history)
            number = sum((w > 0).sum() for _, w in data)
            return members, (self._off(members, data).mean(0) ** 2).sum() / jnp.maximum(number, 1)

        return jax.jit(analysis, out_shardings=self._places)

    @cached_property
    def _lattice(self) -> list[np.ndarray]:
        """The places of the lattice along x, y and z of arrays."""
        grid = self.simulation.grid
        lengths = [
            length if axis in grid.axes else 0 for axis, length in zip("xyz", grid.box, strict=True)
        ]
        numbers = [
            min(n, 1 + int(_PER_RADIUS * b / self._radius))
            for n, b in zip(grid.shape, lengths, strict=True)
        ]
        return [np.arange(n) * length / n for n, length in zip(numbers, grid.box, strict=True)]

    def _weights(self, off: np.ndarray, rho: float) -> np.ndarray:
        """The coefficients (place, old member, new member) of the new members."""
        grid = self.simulation.grid
        count = len(off)
        mean = off.mean(0)
        box = np.array(grid.seen(grid.box))
        used = [axis in grid.axes for axis in "xyz"]
        located = [
            # Values without a place count everywhere.
            np.full((one.values.shape[1], len(box)), np.nan)
            if one.positions is None
            else one.positions
            for one in self.observed
        ]
        positions = np.concatenate(located)
        lattice = np.stack(np.meshgrid(*self._lattice, indexing="ij"), -1).reshape(-1, 3)[:, used]
        squares = np.empty((len(lattice), count, count))
        slopes = np.empty((len(lattice), count))
        for number, place in enumerate(lattice):
            apart = abs(place - positions)
            r = np.sqrt((np.minimum(apart, box - apart) ** 2).sum(-1)) * 2 / self._radius
            taper = np.where(np.isnan(r), 1, _gaspari_cohn(r))
            near = taper > 0
            deviations = (off - mean)[:, near]
            tapered = deviations * taper[near]
            squares[number] = tapered @ deviations.T
            slopes[number] = tapered @ mean[near]
        return np.asarray(_combination(squares, slopes, rho))

    def _mixed(self, name: str, members: jax.Array, weights: np.ndarray) -> jax.Array:
        """The new members of a field: the combination differs from point to point."""
        model = self.simulation.model
        transform = self.simulation.model.transforms[name]
        values = jax.vmap(transform.inverse)(members)
        flat = values.reshape(len(values), -1, *values.shape[-3:])
        lattice = weights.reshape(*map(len, self._lattice), *weights.shape[1:])
        x, y, z = map(
            _interpolation, map(len, self._lattice), self.simulation.grid.shape, values.shape[-3:]
        )

        def member(coefficients: jax.Array) -> jax.Array:
            spread = jnp.einsum(
                "abcm,xa,yb,zc->mxyz", coefficients.astype(values.dtype), x, y, z, optimize=True
            )
            return jnp.einsum("mxyz,mkxyz->kxyz", spread, flat).reshape(values.shape[1:])

        new = lax.map(
            lambda coefficients: transform.forward(
                transform.physical.constrain(member(coefficients))
            ),
            jnp.moveaxis(lattice, -1, 0),
        )
        return (
            jax.vmap(lambda f: without_divergence(model, f))(new)
            if name in model.solenoidal
            else new
        )


@jax.jit
def _combination(squares: jax.Array, slopes: jax.Array, rho: float) -> jax.Array:
    """The coefficients of each place from Y' Y'^T and Y' d. The threads of numpy's BLAS take many
    times as long for matrices as small as these."""
    count = slopes.shape[-1]
    values, vectors = jnp.linalg.eigh(squares)
    values = 1 / ((count - 1) / rho + values)
    shift = -jnp.einsum("pij,pj,pkj,pk->pi", vectors, values, vectors, slopes, optimize=True)
    root = jnp.einsum("pij,pj,pkj->pik", vectors, jnp.sqrt((count - 1) * values), vectors)
    change = shift[..., None] + root
    return 1 / count + change - change.mean(1, keepdims=True)


def _moments(fields: Fields) -> tuple[Fields, Fields]:
    """The means over the members, and the deviations from them over the root of one less than their
    number."""
    mean = {n: f.mean(0) for n, f in fields.items()}
    return mean, {n: (f - mean[n]) / (len(f) - 1) ** 0.5 for n, f in fields.items()}


def _interpolation(places: int, points: int, padded: int) -> np.ndarray:
    """The matrix (padded point, place) of periodic linear interpolation from a lattice to the
    grid."""
    at = np.arange(padded) % points * places / points
    matrix = np.zeros((padded, places))
    low = at.astype(int)
    np.add.at(matrix, (np.arange(padded), low % places), 1 - (at - low))
    np.add.at(matrix, (np.arange(padded), (low + 1) % places), at - low)
    return matrix


def _gaspari_cohn(r: np.ndarray) -> np.ndarray:
    """A correlation function of the distance, 1 at 0 and 0 from 2 on."""
    near = ((((-r / 4 + 1 / 2) * r + 5 / 8) * r - 5 / 3) * r**2) + 1
    far = (
        ((((r / 12 - 1 / 2) * r + 5 / 8) * r + 5 / 3) * r - 5) * r + 4 - 2 / (3 * np.maximum(r, 1))
    )
    return np.where(r <= 1, near, np.where(r < 2, far, 0))
