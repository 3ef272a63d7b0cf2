"""The initial conditions of a composite: one for each component."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, cast

from pydantic import Field, create_model

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles, start_of
from simulator.physics.models.component import PARTICLES
from simulator.physics.models.composite import Composite as Model
from simulator.physics.models.composite import joined
from simulator.settings import Settings


def composite(parts: Mapping[str, type[Any]]) -> type[Any]:
    """The initial condition whose components start from any of `parts`."""
    part_settings: Any = Annotated[
        Union[tuple(p.Settings for p in parts.values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]

    class CompositeStart(Initial):
        """Each component starts as its own model alone would, under the composite's gravity.

        A soliton's mass, radius and relaxation refer to its own matter only.
        """

        composite = True
        Settings = create_model(
            "CompositeInitialSettings",
            __base__=Settings,
            kind=(Literal["composite"], "composite"),
            components=(
                cast(Any, dict[str, part_settings]),
                Field(description="The initial condition of each component, by the component's name."),
            ),
        )

        def build_for(self, model: Any, files: StartFiles) -> Fields:
            if not isinstance(model, Model):
                raise UserError("kind: composite needs model.kind: composite")
            given = self.settings.components
            for name in (*model.parts, *given):
                if name not in model.parts:
                    raise UserError(f"components.{name}: the model's components are {', '.join(model.parts)}")
                if name not in given:
                    raise UserError(f"components.{name}: missing; every component needs an initial condition")
            fields = {}
            for name, part in model.parts.items():
                settings = given[name]
                initial = parts[settings.kind](settings)
                try:
                    if part.population is None:
                        fields[name] = start_of(initial, part.alone, files)
                    else:
                        fields[name] = {PARTICLES: initial.place(part, files)}
                except UserError as error:
                    raise UserError(f"components.{name}: {error}") from error
            return joined(fields)

    return CompositeStart
