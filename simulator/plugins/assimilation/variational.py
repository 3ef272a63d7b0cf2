"""Strong-constraint 4D-Var: finds the initial state whose run fits prior and observations best.

J(xi) = |xi|^2 / 2 + sum over observations of ((H(state) - y) / error)^2 / 2, with the start mean +
B^(1/2) xi (Le Dimet & Talagrand, Tellus A 38, 97 (1986); control variables of Lorenc, Q. J. R.
Meteorol. Soc. 114, 205 (1988)).

The run is divided at the times of the observations. The forward run stores the states there; the
backward run computes each segment again (`differentiate.Gradient`), so that one compiled program
serves windows of every length. Each window is twice as long as the one before, because J has many
minima where errors grow by a large factor (quasi-static 4D-Var: Pires, Vautard & Talagrand, Tellus
A 48, 96 (1996))."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from simulator.errors import RunFailure
from simulator.physics.models import State, StateMemory
from simulator.plugins.assimilation.background import Prior, copies, freedom
from simulator.plugins.assimilation.observations import Data, Observed
from simulator.plugins.assimilation.posterior import Control, Posterior, Shells, posterior
from simulator.plugins.assimilation.search import Search
from simulator.plugins.gradients.differentiate import Gradient
from simulator.simulation.advance import beginning
from simulator.simulation.simulation import Simulation
from simulator.spectral.random import Stream, host_generator

Residuals = Sequence[jax.Array | np.ndarray]
MEMORY = 12  # Pairs of differences of L-BFGS, as many fields of each kind in memory.
_SUFFICIENT = 1e-4
_TRIALS = 12
Scale = dict[str, jax.Array]
Row = dict[str, float]


@dataclass(frozen=True)
class Iterate:
    """A point of the descent, with everything on which the next one depends."""

    xi: Control
    gradient: Control
    optimiser: Any
    scale: Scale
    """The square roots of the variances with which L-BFGS begins, relative to the prior, by field
    and shell."""
    cost: float
    misfit: float  # The mean square of (H(state) - y) / error; noise alone gives 1.
    window: int = 0
    count: int = 0  # The iterations in the window so far.


class Variational(Search[Iterate]):
    """The cost of a start and its gradient, and the steps of the descent."""

    def __init__(
        self,
        observed: Sequence[Observed],
        background: Prior,
        windows: int = 4,
        iterations: int = 30,
        tolerance: float = 2e-3,
        hessian_products: int = 200,
    ):
        super().__init__(observed, background)
        self.lbfgs = optax.scale_by_lbfgs(MEMORY)
        self._ends = self.windows(windows)
        self._most = iterations
        self._tolerance = tolerance
        self._hessian_products = hessian_products

    def _off(self, state: State, data: Data) -> Residuals:
        return [
            (one.operator(state) - y) * w for one, (y, w) in zip(self.observed, data, strict=True)
        ]

    def _ran(self, steps: int, state: State) -> State:
        return self._gradients(steps).states({}, state)[0] if steps else state

    @cache  # noqa: B019
    def _gradients(self, steps: int) -> Gradient:
        return Gradient(self.simulation, lambda state: jnp.zeros(()), steps=steps, dt=self.dt)

    @cache  # noqa: B019
    def forward(self, steps: int) -> Any:
        """The compiled function (state, data) -> (the state after `steps` steps, its (H - y) / error,
        one array for each kind of observation)."""

        def forward(state: State, data: Data) -> tuple[State, Residuals]:
            state = self._ran(steps, state)
            return state, self._off(state, data)

        everywhere = self.simulation.transform.layout.everywhere
        return jax.jit(forward, out_shardings=(None, everywhere))

    @cache  # noqa: B019
    def reverse(self, steps: int) -> Any:
        """The compiled function (state, data, residuals, slopes with respect to the last state) ->
        slopes with respect to the first state. The misfit at the last state adds its slopes;
        `residuals`, if not None, stand for its (H - y) / error, as if the misfit were linear."""

        def reverse(
            state: State, data: Data, residuals: Residuals | None, slopes: list[jax.Array]
        ) -> list[jax.Array]:
            def ran(leaves: list[jax.Array]) -> tuple[list[jax.Array], Residuals]:
                end = self._ran(steps, _merged(state, leaves))
                return _smooth(end), self._off(end, data)

            (_, off), back = jax.vjp(ran, _smooth(state))
            return _placed(
                state, self.simulation, back((slopes, off if residuals is None else residuals))[0]
            )

        return jax.jit(reverse)

    @cached_property
    def _at_start(self) -> Any:
        def slopes(
            xi: Control, after: list[jax.Array], mean: Control, root: Mapping[str, jax.Array]
        ) -> Control:
            _, back = jax.vjp(lambda xi: _smooth(self.started(xi, mean, root)), xi)
            return self._constrained(jax.tree.map(jnp.conj, back(after)[0]))

        return partial(jax.jit(slopes), mean=self.background.mean, root=self.background.root)

    def _constrained(self, xi: Control) -> Control:
        return {n: self.layout(n).constrain(x) for n, x in xi.items()}

    @cached_property
    def _norm(self) -> Callable[[Control], jax.Array]:
        return jax.jit(lambda xi: 0.5 * optax.tree.norm(xi, squared=True))

    @cached_property
    def _direction(self) -> Any:
        def direction(
            gradient: Control, optimiser: optax.OptState, xi: Control, scale: Scale
        ) -> tuple[Control, Any, jax.Array]:
            over = self._over_modes(scale)
            slopes = {n: over[n] * g for n, g in gradient.items()}
            point = {n: x / over[n] for n, x in xi.items()}
            update, optimiser = self.lbfgs.update(slopes, optimiser, point)
            way = self._constrained({n: over[n] * d for n, d in cast(Control, update).items()})
            return way, optimiser, optax.tree.real(optax.tree.vdot(gradient, way))

        return jax.jit(direction)

    def _over_modes(self, scale: Scale) -> Scale:
        layouts = {name: self.layout(name) for name in scale}
        return {n: layouts[n].constrain(s[layouts[n].shell_numbers()]) for n, s in scale.items()}

    @cached_property
    def _moved(self) -> Callable[[Control, Control, np.float64], Control]:
        kind = self.simulation.dtype
        return jax.jit(
            lambda xi, way, rate: jax.tree.map(lambda x, d: x - rate.astype(kind) * d, xi, way)
        )

    @cached_property
    def _per_number(self) -> Callable[[Control], Scale]:
        """The mean square of a control variable's independent numbers in each shell."""

        def shells(name: str, slopes: jax.Array) -> jax.Array:
            layout = self.layout(name)
            modes, _ = layout.shell_modes()
            square = (slopes.real**2 + slopes.imag**2).reshape(-1, *layout.shape).sum(0)
            squares = layout.shell_sum(square / copies(layout, square.dtype))
            return squares / jnp.maximum(modes, 1) / freedom(self.simulation, name)

        return jax.jit(lambda slopes: {name: shells(name, s) for name, s in slopes.items()})

    def stored(self, at: Iterate) -> tuple[State, dict[str, Any]]:
        o = at.optimiser
        history = {"gradient": at.gradient, "params": o.params, "updates": o.updates}
        history |= {"diff_params": o.diff_params_memory, "diff_updates": o.diff_updates_memory}
        memory = {f"scale_{name}": scale for name, scale in at.scale.items()}
        memory |= {"count": o.count, "weights": o.weights_memory}
        numbers = {name: getattr(at, name) for name in ("cost", "misfit", "window", "count")}
        return beginning(at.xi, StateMemory(model=memory), history), numbers

    def loaded(self, state: State, numbers: Mapping[str, Any]) -> Iterate:
        h = state.history
        m = state.memory.model
        optimiser = self.empty(state.fields)._replace(
            count=m["count"],
            weights_memory=m["weights"],
            params=h["params"],
            updates=h["updates"],
            diff_params_memory=h["diff_params"],
            diff_updates_memory=h["diff_updates"],
        )
        scale = {name: m[f"scale_{name}"] for name in state.fields}
        return Iterate(state.fields, h["gradient"], optimiser, scale, **numbers)

    def first(self) -> Iterate:
        """The prior's mean, before the first window."""
        model = self.simulation.model
        kind = model.transform.complex_dtype
        layouts = {name: model.transforms[name].layout for name in self.background.root}

        def zeros() -> Control:
            shapes = {
                name: (*model.shapes[name], *layout.shape) for name, layout in layouts.items()
            }
            return self._constrained(
                {name: jnp.zeros(shape, kind) for name, shape in shapes.items()}
            )

        xi = jax.jit(zeros)()
        scale = {
            name: jnp.zeros(layout.shells, self.simulation.dtype)
            for name, layout in layouts.items()
        }
        return Iterate(xi, xi, self.empty(xi), scale, 0.0, 0.0)

    def template(self) -> State:
        return self.stored(self.first())[0]

    def windows(self, number: int) -> list[int]:
        """The last steps of the windows: the first observations alone, then windows that double in
        length."""
        ends = [self.steps[0] + (self.steps[-1] - self.steps[0]) / 2**i for i in range(number)]
        near = [int(self.steps[np.argmin(abs(self.steps - end))]) for end in ends]
        return sorted({int(self.steps[0]), *near})

    def residuals(self, xi: Control, end: int) -> tuple[list[Residuals], list[State]]:
        """(H - y) / error at each time of observations until the step `end`, and the states at the
        beginnings of the segments."""
        states = []
        state = self.start(xi)
        residuals = []
        for steps, last in self.segments(end):
            states.append(state)
            state, off = self.forward(steps)(state, self.data(last))
            residuals.append(off)
        return jax.device_get(residuals), states

    def misfits(self, xi: Control, end: int) -> tuple[np.ndarray, list[State]]:
        """Half the squared misfit at each time of observations, and the states of `residuals`."""
        residuals, states = self.residuals(xi, end)
        return np.array([_half_square(off) for off in residuals]), states

    def cost(self, xi: Control, end: int) -> tuple[float, float, list[State]]:
        """J, the mean square misfit, and the states of `residuals`."""
        misfits, states = self.misfits(xi, end)
        misfit = float(misfits.sum())
        return misfit + float(self._norm(xi)), 2 * misfit / max(self.number(end), 1), states

    def slopes(
        self,
        xi: Control,
        states: list[State],
        end: int,
        residuals: Sequence[Residuals] | None = None,
    ) -> Control:
        """The direction of ascent of the misfit. `residuals`, at each time of observations, stand for
        those of the misfit: the adjoint of these numbers."""
        after = [jnp.zeros_like(leaf) for leaf in _smooth(states[-1])]
        for number in reversed(range(len(states))):
            steps, last = self.segments(end)[number]
            seen = None if residuals is None else residuals[number]
            after = self.reverse(steps)(states[number], self.data(last), seen, after)
        # Programs that do not depend on each other must not run at the same time: each has
        # exchanges.
        return jax.block_until_ready(self._at_start(xi, after))

    def echo(self, xi: Control, states: list[State], end: int) -> Control:
        """The adjoint of random residuals, whose covariance is the misfit's Gauss-Newton Hessian."""
        draw = host_generator(Stream.PROBE, 0)

        def noise(last: int) -> Residuals:
            weights = [weight for _, weight in self.data(last)]
            return [(draw.standard_normal(w.shape) * (w > 0)).astype(w.dtype) for w in weights]

        return self.slopes(xi, states, end, [noise(last) for _, last in self.segments(end)])

    def curvature(self, xi: Control, states: list[State], end: int, way: Control) -> Control:
        """The product of the misfit's Gauss-Newton Hessian in `xi` with `way`: the adjoint of the
        change of the residuals. The change is a central difference, because transforms on processors
        have no forward derivative; its step, a fourth root of the precision relative to `xi`,
        balances round-off and curvature."""
        square, length = (2 * float(self._norm(one)) for one in (xi, way))
        step = float(np.finfo(self.simulation.dtype).eps) ** 0.25 * (max(square, 1) / length) ** 0.5
        plus, minus = (
            self.residuals(self._moved(xi, way, np.float64(rate)), end)[0] for rate in (-step, step)
        )
        change = jax.tree.map(lambda a, b: (a - b) / np.asarray(2 * step, a.dtype), plus, minus)
        return self.slopes(xi, states, end, change)

    def posterior(self, xi: Control, states: list[State], end: int) -> Posterior:
        """The variance that the observations leave, in the Laplace approximation."""
        return posterior(
            curvature=lambda way: self.curvature(xi, states, end, way),
            measure=self._products,
            prior=self.prior_shells(),
            start=self.echo(xi, states, end),
            random=self._unit_modulus,
            products=self._hessian_products,
        )

    def _unit_modulus(self, number: int) -> Control:
        """A random direction whose independent numbers have the mean square 1, each coefficient
        exactly so."""

        dtype = self.simulation.dtype

        def direction(number: jax.Array) -> Control:
            return {
                n: jnp.sqrt(copies(self.layout(n), dtype)) * x / jnp.where(x == 0, 1, abs(x))
                for n, x in self.background.drawn(Stream.PROBE, number).items()
            }

        return self._constrained(jax.jit(direction)(np.int64(number)))

    @cached_property
    def _products(self) -> Callable[[Control, Control], Shells]:
        """The function of two control variables to half the sum of products of their fields in each
        shell."""

        def products(a: Control, b: Control, root: Mapping[str, jax.Array]) -> Control:
            prior = replace(self.background, root=root)
            sums = {}
            first = prior.deviation(a)
            second = prior.deviation(b)
            for name, one in first.items():
                layout = self.layout(name)
                product = (one.conj() * second[name]).real.reshape(-1, *layout.shape).sum(0)
                sums[name] = layout.shell_sum(product.astype(np.float64)) / 2
            return sums

        compiled = jax.jit(products)

        def on_host(a: Control, b: Control) -> Shells:
            sums = jax.block_until_ready(compiled(a, b, dict(self.background.root)))
            return {name: np.asarray(value) for name, value in sums.items()}

        return on_host

    def _scale(self, echo: Control) -> Scale:
        """The square root of the posterior variance relative to the prior, by field and shell,
        1 / sqrt(1 + G_ii). The squares of an `echo` estimate the diagonal G_ii of the Gauss-Newton
        Hessian (Hutchinson)."""
        return {
            n: (1 / jnp.sqrt(1 + k)).astype(self.simulation.dtype)
            for n, k in self._per_number(echo).items()
        }

    def begin(self, xi: Control, end: int) -> Iterate:
        """The first point in the window that ends at the step `end`. The variables are scaled so that
        the diagonal of the Hessian is about 1."""
        cost, misfit, states = self.cost(xi, end)
        scale = self._scale(self.echo(xi, states, end))
        return Iterate(xi, self._gradient(xi, states, end), self.empty(xi), scale, cost, misfit)

    def _gradient(self, xi: Control, states: list[State], end: int) -> Control:
        return jax.tree.map(jnp.add, self.slopes(xi, states, end), xi)

    def empty(self, xi: Control) -> Any:
        """The initial state of L-BFGS. optax would keep the weights in double precision."""
        return jax.jit(self.lbfgs.init)(xi)._replace(
            weights_memory=jnp.zeros(MEMORY, self.simulation.dtype)
        )

    def descended(self, at: Iterate, end: int) -> Iterate | None:
        """The next point; None if no step lowers J. The backtracking line search runs on the host,
        which calls the segments; a line search of optax would compile the whole window."""
        way, optimiser, slope = self._direction(at.gradient, at.optimiser, at.xi, at.scale)
        if not float(slope) > 0:  # J was concave along an earlier step
            way, optimiser, slope = self._direction(at.gradient, self.empty(at.xi), at.xi, at.scale)
        # The first step of optax has length 1, or less; here the gradient itself is near to
        # Newton's step.
        rate = max(1.0, float(slope)) if int(optimiser.count) == 1 else 1.0
        for _ in range(_TRIALS):
            xi = self._moved(at.xi, way, np.float64(rate))
            cost, misfit, states = self.cost(xi, end)
            if cost <= at.cost - _SUFFICIENT * rate * float(slope):
                return Iterate(
                    xi, self._gradient(xi, states, end), optimiser, at.scale, cost, misfit
                )
            # The minimum of the parabola through both costs with the slope at the first.
            bend = 2 * (cost - at.cost + rate * float(slope))
            rate *= (
                min(max(rate * float(slope) / bend, 0.1), 0.5)
                if np.isfinite(bend) and bend > 0
                else 0.1
            )
        return None

    def is_finished(self, at: Iterate) -> bool:
        return at.window == len(self._ends)

    def next(self, at: Iterate) -> tuple[Iterate, Row, str]:
        window = at.window
        end = self._ends[at.window]
        if at.count == 0:
            at = self.begin(at.xi, end)
            if not np.isfinite(at.cost):
                raise RunFailure(
                    "the run from the first guess is not finite; observe the start too, or set background.mean"
                )
        new = self.descended(at, end)
        why = self._why_ended(at, new)
        count = at.count + 1
        length = end * self.dt
        at = new or at
        row = {"window": length, "iteration": count, "cost": at.cost, "misfit": at.misfit}
        said = f"window {window + 1} of {len(self._ends)}, length {length:.4g}, iteration {count}: "
        said += f"misfit {at.misfit:.4g}, cost {at.cost:.6g}"
        if why is None:
            return replace(at, window=window, count=count), row, said
        return replace(at, window=window + 1, count=0), row, f"{said}; the window ends: {why}"

    def _why_ended(self, at: Iterate, new: Iterate | None) -> str | None:
        """Why the window ends with the iteration from `at` to `new`; None if it does not."""
        if new is None:
            return "no step along the descent lowers the cost"
        if at.cost - new.cost < self._tolerance * at.cost:
            return f"the cost fell by less than {self._tolerance:g} of itself (tolerance)"
        if at.count + 1 >= self._most:
            return f"{self._most} iterations (iterations)"
        if new.misfit < 1 and at.window + 1 < len(self._ends):
            return "the misfit is that of noise"  # more would fit the noise
        return None

    def recovered(self, at: Iterate, say: Callable[[str], None]) -> tuple[State, dict[str, Any]]:
        """The recovered initial state, and the arrays of the result: fit and spectra, the posterior
        variance in the Laplace approximation, and the expected misfit."""
        end = int(self.steps[-1])
        state = self.start(at.xi)
        misfits, states = self.misfits(at.xi, end)
        say(f"expected error: at most {self._hessian_products} products with the Hessian")
        posterior = self.posterior(at.xi, states, end)
        if posterior.is_rough:
            say("the expected error is rough: more hessian_products are needed")
        numbers = [
            sum(int((w > 0).sum()) for _, w in self.data(last)) for _, last in self.segments(end)
        ]
        result = {
            "rms": np.sqrt(2 * misfits / np.maximum(numbers, 1)),
            "expected_misfit": 1 - posterior.known / max(sum(numbers), 1),
            "eigenpairs": posterior.eigenpairs,
            "directions": posterior.directions,
            "is_rough": posterior.is_rough,
            **self.spectra(state.fields),
        }
        result |= {f"posterior_{n}": variance for n, variance in posterior.variance.items()}
        return state, result


def _half_square(residuals: Residuals) -> float:
    return 0.5 * sum(float((np.asarray(off, np.float64) ** 2).sum()) for off in residuals)


def _is_smooth(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def _smooth(state: State) -> list[jax.Array]:
    """The floating-point arrays of a state, with respect to which it can be differentiated."""
    return [leaf for leaf in jax.tree.leaves(state) if _is_smooth(leaf)]


def _merged(state: State, smooth: list[jax.Array]) -> State:
    """The state with its floating-point arrays replaced."""
    leaves, tree = jax.tree.flatten(state)
    replacements = iter(smooth)
    return jax.tree.unflatten(
        tree, [next(replacements) if _is_smooth(leaf) else leaf for leaf in leaves]
    )


def _placed(state: State, simulation: Simulation, slopes: list[jax.Array]) -> list[jax.Array]:
    places = jax.tree.leaves(simulation.shardings(state))
    sharding = [
        place
        for place, leaf in zip(places, jax.tree.leaves(state), strict=True)
        if _is_smooth(leaf)
    ]
    return [
        lax.with_sharding_constraint(slope, place)
        for slope, place in zip(slopes, sharding, strict=True)
    ]
