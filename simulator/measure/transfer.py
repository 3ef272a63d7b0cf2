"""Energy transfer and flux between scales: transfer.h5."""

from __future__ import annotations

from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported, in_shells
from simulator.measure.lazy import flux, jax, models, shell_spectra, spectral


class Transfer(Kind):
    name = "transfer"
    description = "Energy transfer and flux between scales in transfer.h5."

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        if not (transfers := subject.names(subject.model.transfers)):
            raise Unsupported("needs energy transfers between modes")
        return transfer(subject.transform.layout, subject.model, transfers)


def transfer(layout: spectral.Layout, model: models.Model, names: tuple[str, ...]) -> Measured:
    """Energy transfer T(k) by the nonlinear terms, `transfer/NAME`, and its flux to larger wavenumbers,
    `flux/NAME`: Pi(k) = -sum of T up to k. `names` are those of `model.transfers`."""

    def compute(state: models.State) -> dict[str, jax.Array]:
        transfers = shell_spectra(layout, model.transfers(state.fields))
        fluxes = {f"flux/{n}": flux(t, layout.shell_width) for n, t in transfers.items()}
        return {f"transfer/{n}": t for n, t in transfers.items()} | fluxes

    return in_shells(layout, [f"{kind}/{n}" for kind in ("transfer", "flux") for n in names], compute)
