"""Means over time of a run's measurements, with error bars: statistics.h5."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Curves, Kind, Subject
from simulator.settings import Real

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured

# `from` is a keyword of Python, so that a class statement cannot define the field.
StatisticsSettings: Any = create_model(
    "StatisticsSettings",
    __base__=SeriesCadence,
    **{"from": (Real, Field(default=0.0, description="The time from which on samples are taken."))},  # pyright: ignore
)

OF = ("mean", "variance", "error")


class Statistics(Kind):
    name = "statistics"
    description = "Means over time of diagnostics, spectra and transfer, with error bars, in statistics.h5."
    Settings = StatisticsSettings
    curves = Curves(
        title=lambda name: name.replace("/", " ").replace("_", " "),
        coordinates={"k": r"wavenumber $k$"},
        log="x",
    )

    def measured(self, subject: Subject, settings: Any) -> "Measured":
        import jax
        import jax.numpy as jnp

        from simulator.diagnostics.measured import Carried, Measured, in_shells
        from simulator.diagnostics.over_time import Moments, empty, flattened, results, taken_in
        from simulator.models import State
        from simulator.spectral.bins import flux, shell_spectra

        model, layout = subject.model, subject.transform.layout
        start = float(getattr(settings, "from"))

        def quantities(state: State) -> dict[str, jax.Array]:
            row = model.diagnostics(model.contents(state), state.time)
            values = {name: value for name, value in row.items() if name != "rate"}
            values |= {f"spectrum/{n}": e for n, e in model.spectra(model.contents(state)).items()}
            for name, rate in shell_spectra(layout, model.transfers(state.fields)).items():
                values |= {f"transfer/{name}": rate, f"flux/{name}": flux(rate, layout.shell_width)}
            return dict(sorted(values.items()))

        shapes = {name: a.shape for name, a in jax.eval_shape(quantities, subject.template).items()}
        sizes = [shape[0] if shape else 1 for shape in shapes.values()]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]

        def begin() -> dict[str, jax.Array]:
            return empty(ends[-1])._asdict()

        def update(state: State, sums: Any) -> dict[str, jax.Array]:
            active = state.time >= start * (1 - 1e-12)
            return taken_in(Moments(**sums), flattened(quantities(state)), active)._asdict()

        def compute(state: State, sums: Any) -> dict[str, jax.Array]:
            moments = Moments(**sums)
            row = {"samples": moments.blocks[0]}
            for kind, values in results(moments).items():
                parts = jnp.split(values, ends[:-1])
                row |= {
                    f"{kind}/{name}": part.reshape(shape)
                    for (name, shape), part in zip(shapes.items(), parts, strict=True)
                }
            return row

        curves = [name for name, shape in shapes.items() if shape]
        shells = in_shells(layout, curves, lambda state: {})
        variables: dict[str, tuple[str, ...]] = {"samples": ()}
        variables |= {
            f"{kind}/{name}": ("k",) if shape else () for kind in OF for name, shape in shapes.items()
        }
        return Measured(
            shells.coordinates,
            variables,
            compute,
            {**shells.attributes, "from": start},
            shells.beside,
            Carried(begin, update),
        )
