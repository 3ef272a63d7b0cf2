"""The arrays of this program as types. A name in a shape is a length that all arrays of one call share.

ka, kb, kc are the modes of a layout, in the order of its axes; x, y, z the points of the grid or, in a pointwise
function, of a block in the block's order; both with padding. component: any leading axes; d: one component for each
axis of the grid. With # the length may also be 1: the array broadcasts. particle: the entries of the buffers of
particles; shell: the shells of spectra; "": a number without axes."""

from jax import Array
from jaxtyping import Bool, Complex, Float, Inexact, Int, Integer

Number = Float[Array, ""]
Whole = Integer[Array, ""]
Truth = Bool[Array, ""]

SpectralField = Complex[Array, "*component ka kb kc"]
SpectralScalar = Complex[Array, "ka kb kc"]
SpectralVector = Complex[Array, "d ka kb kc"]
SpectralFields = dict[str, Complex[Array, "... ka kb kc"]]
OfModes = Float[Array, "ka kb kc"]  # A real number for each mode, such as its energy.
OverModes = Inexact[Array, "#ka #kb #kc"]  # A factor for each mode, such as a wavenumber or L.

PhysicalField = Inexact[Array, "*component x y z"]
PhysicalScalar = Inexact[Array, "x y z"]
PhysicalVector = Inexact[Array, "d x y z"]
PointValues = dict[str, Inexact[Array, "... #x #y #z"]]
OverPoints = Float[Array, "#x #y #z"]  # A factor for each point, such as a coordinate.

ParticleVectors = Float[Array, "3 particle"]
ParticleScalars = Float[Array, "particle"]
ParticleIds = Int[Array, "particle"]

Spectrum = Float[Array, "shell"]
