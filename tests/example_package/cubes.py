"""Three series of a package that is installed beside the program. JAX is imported where they are
computed, so that their pictures are drawn without it."""

from simulator.measure import Curves, Kind, SeriesCadence
from simulator.settings import Points


class CubeSettings(SeriesCadence):
    power: Points = 2
    """The power of speed."""


class Cubes(Kind):
    """<|u|^power>, its square as a curve, and an image."""

    name = "cubes"
    description = "Moments of speed in cubes.h5."
    Settings = CubeSettings
    curves = Curves(title=lambda name: "moment", coordinates={"n": "number"}, log="y")

    def measured(self, subject, settings):
        import jax.numpy as jnp
        import numpy as np

        from simulator.measure import Measured
        from simulator.physics.models import outputs

        def compute(state):
            speed = outputs.field_values(subject.model, "speed", state.fields)
            mean = subject.transform.physical.mean(speed**settings.power)
            ones = jnp.ones((3, 2))
            return {"moment": mean, "powers": mean ** jnp.arange(1, 4), "map/all": mean * ones}

        return Measured(
            {"n": np.arange(3), "m": np.arange(2)},
            {"moment": (), "powers": ("n",), "map/all": ("n", "m")},
            compute,
            {"power": settings.power},
        )


class Means(Kind):
    """The mean over time of the velocity, as values and as modes, of which a row holds the energy."""

    name = "means"
    description = "Energy of the mean flow in means.h5."

    def measured(self, subject, settings):
        import jax.numpy as jnp

        from simulator.measure import Carried, Measured
        from simulator.physics.models import outputs

        transform, template = subject.transform, subject.template.fields["velocity"]
        layout, physical = transform.layout, transform.physical

        def begin():
            values, modes = (
                jnp.zeros((3, *physical.shape)),
                jnp.zeros(template.shape, template.dtype),
            )
            return {"count": jnp.zeros(()), "values": values, "modes": modes}

        def update(state, sums):
            values = outputs.field_values(subject.model, "velocity", state.fields)
            new = {"count": 1, "values": values, "modes": state.fields["velocity"]}
            return {name: sums[name] + new[name] for name in sums}

        def compute(state, sums):
            values, modes = (sums[name] / sums["count"] for name in ("values", "modes"))
            return {
                "count": sums["count"],
                "of_values": physical.mean((values**2).sum(0)) / 2,
                "of_modes": layout.inner(modes, modes).sum() / 2,
            }

        places = {"values": physical, "modes": layout}
        names = ("count", "of_values", "of_modes")
        return Measured(
            {}, dict.fromkeys(names, ()), compute, carried=Carried(begin, update, places)
        )


class MeanFlow(Kind):
    """The mean velocity along x, with a picture that curves cannot describe."""

    name = "mean_flow"
    description = "Mean velocity along x in mean_flow.h5."

    def measured(self, subject, settings):
        from simulator.measure import Measured
        from simulator.physics.models import outputs

        def compute(state):
            velocity = outputs.field_values(subject.model, "velocity", state.fields)
            return {"mean": subject.transform.physical.mean(velocity[0])}

        return Measured({}, {"mean": ()}, compute)

    def pictures(self, series, labels):
        def bars():
            from matplotlib.figure import Figure

            figure = Figure()
            figure.subplots().bar(series.step, series["mean"])
            return figure

        yield "mean_flow_bars", bars
