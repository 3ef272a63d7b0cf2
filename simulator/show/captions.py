"""Captions of pictures, from the names of their files."""

_QUANTITIES = {"kinetic_energy": "kinetic energy", "magnetic_energy": "magnetic energy"}
_KINDS = (
    ("spectrum_compensated", "Energy spectrum times k^(5/3) in Kolmogorov's units"),
    ("spectrum_directional_", "Spectra across and along the axis: {}"),
    ("spectrum_", "Shell spectrum at several times: {}"),
    ("transfer_", "Transfer between scales, and the flux to smaller ones: {}"),
    ("structure_functions", "Structure functions of velocity increments"),
    ("histogram_", "Probability density at several times: {}"),
    ("profile_", "Profile about the densest point: {}"),
    ("projection_", "Integrated along each axis: {}"),
    ("slices_", "The three planes through the middle of the box: {}"),
    ("series_", "All runs against time: {}"),
    ("render_", "Volume picture: {}"),
)


def caption(stem: str) -> str:
    """`spectrum_kinetic_energy` in words."""
    if stem == "diagnostics":
        return "Energy, dissipation and other box means against time"
    for start, words in _KINDS:
        if stem.startswith(start):
            rest = stem.removeprefix(start)
            return words.format(_QUANTITIES.get(rest, rest.replace("_", " ").replace("+", " and ")))
    quantity, against, parameter = stem.partition("_against_")
    words = quantity.replace("_", " ")
    return f"{words} against {parameter.replace('_', ' ')}" if against else words
