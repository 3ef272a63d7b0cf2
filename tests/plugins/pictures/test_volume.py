"""Volume pictures: the optical depth of a known blob, one picture on any devices, light in the
right order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from peers.collectives import collectives

from simulator.plugins.pictures.volume import Camera, TransferFunction, Volume
from simulator.spectral import Grid, make_transform

LINEAR = TransferFunction(((0.0, (1.0, 0.5, 0.25), 0.0), (1.0, (1.0, 0.5, 0.25), 0.1)))
"""Absorption in proportion to values between 0 and 1."""
KAPPA = -np.log(0.9) / 0.01
"""Its coefficient at value 1, per shortest side of the box."""


def physical(shape, devices, box=(1.0, 1.0, 1.0), **options):
    return make_transform(Grid(shape, box), jax.devices()[:devices], np.float64, **options).physical


def picture_of(volume, function):
    return np.asarray(jax.jit(volume.image)(placed(volume.physical, function)))


def placed(layout, function):
    return jax.jit(lambda: function(*layout.coordinates()), out_shardings=layout.sharding())()


CENTRE = np.array([0.55, 0.45, 0.5])
WIDTH = 0.1


def blob(x, y, z):
    """A sphere-shaped Gaussian: at the faces of the box it is below 1e-3 of its peak."""
    square = (x - CENTRE[0]) ** 2 + (y - CENTRE[1]) ** 2 + (z - CENTRE[2]) ** 2
    return jnp.exp(-square / (2 * WIDTH**2))


def depth(camera, n, devices=2):
    layout = physical((n, n, n), devices)
    light = np.asarray(jax.jit(Volume(layout, camera, (LINEAR,)).light)(placed(layout, blob)))
    return -np.log(light[..., 3])


def exact_depth(camera):
    """The integral of kappa blob along each pixel's ray: that of a Gaussian at its distance from
    the centre."""
    right, up, _ = camera.axes
    width, height = camera.size
    side = camera.pixel(Grid((8, 8, 8), (1.0, 1.0, 1.0)))
    x = (np.arange(width) + 0.5 - width / 2) * side - (CENTRE - 0.5) @ right
    y = (height / 2 - np.arange(height) - 0.5) * side - (CENTRE - 0.5) @ up
    away = x[None, :] ** 2 + y[:, None] ** 2
    return KAPPA * np.sqrt(2 * np.pi) * WIDTH * np.exp(-away / (2 * WIDTH**2))


@pytest.mark.parametrize("view", [(0, 0), (200, -70), (135, 90)])
def test_the_optical_depth_of_a_blob(view):
    """Linear interpolation between points h apart errs by at most h^2 / 8 times the second
    derivative, 1 / WIDTH^2 of the peak: three times in the box, and twice in the intermediate
    image, whose points are at most as far apart. Beyond the faces of the box is nothing, of what is
    exp(-8) there."""
    camera = Camera(*view, size=(64, 48))
    exact = exact_depth(camera)
    n = 48
    most = 5 / 8 / (n * WIDTH) ** 2 + np.exp(-8)
    assert_allclose(depth(camera, n), exact, atol=most * exact.max())


def test_a_blob_that_is_one_colour_sends_out_what_it_absorbs():
    """Emission is colour times absorption: the light is colour (1 - transmittance), to round-off of
    the image."""
    layout = physical((24, 20, 16), 4)
    light = np.asarray(
        jax.jit(Volume(layout, Camera(size=(40, 40)), (LINEAR,)).light)(placed(layout, blob))
    )
    for channel, colour in enumerate((1.0, 0.5, 0.25)):
        assert_allclose(light[..., channel], colour * (1 - light[..., 3]), atol=1e-13)


def test_a_high_peak_does_not_hide_its_surroundings():
    """By default a density absorbs light above its mean, also beside a peak of 10 000 times the
    mean."""
    layout = physical((32, 32, 32), 1)
    (table,) = Volume(layout).tables(placed(layout, lambda *x: blob(*x) + 3000 * blob(*x) ** 30))
    mean = 0.0155 + 3000 * 0.0155 / 30**1.5  # (2 pi)^(3/2) WIDTH^3 for each Gaussian
    assert_allclose(table[1:, 0] / table[:-1, 0], table[1, 0] / table[0, 0], rtol=1e-12)
    assert (
        abs(table[0, 0] / mean - 1) < 0.02
        and table[-1, 0] > 100 * table[0, 0]
        and table[0, 4] == 0 < table[1, 4]
    )


def waves(x, y, z):
    return jnp.sin(7 * x + y) * jnp.cos(2 * y + 5 * z) + 0.3 * jnp.sin(x + 3 * z)


TAILS = TransferFunction(
    ((-1.2, (0.2, 0.6, 1.0), 0.6), (-0.2, (0.2, 0.6, 1.0), 0.0), (1.2, (1.0, 0.7, 0.3), 0.6))
)


def ripples(x, y, z):
    return 1 + jnp.cos(3 * x - y + z) * jnp.sin(y + 4 * z)


@pytest.mark.parametrize(
    "shape, view, media",
    [
        ((16, 16, 16), (30, 25), [(waves, TAILS)]),
        ((12, 10, 9), (100, -10), [(waves, TransferFunction())]),
        ((12, 10, 9), (250, 60), [(waves, TAILS)]),
        (
            (12, 10, 9),
            (30, 25),
            [(ripples, TransferFunction(family=0)), (waves, TransferFunction(family=3))],
        ),
    ],
    ids=["a cube", "a box", "from above", "two fields"],
)
def test_the_same_pixels_on_any_devices(shape, view, media):
    """Ten planes on eight devices, too, three of which have only padding; and on pencils. Of two
    fields one is positive and one has both signs, each in the hue of its own."""
    camera = Camera(*view, size=(48, 40))
    pictures = []
    for devices, options in ((1, {}), (8, {}), (8, {"decomposition": "pencil"})):
        layout = physical(shape, devices, (6.0, 5.0, 4.0), **options)
        volume = Volume(layout, camera, tuple(transfer for _, transfer in media))
        pictures.append(
            np.asarray(jax.jit(volume.image)(*(placed(layout, function) for function, _ in media)))
        )
    assert np.ptp(pictures[0]) > 50  # there is something to see
    for picture in pictures[1:]:
        assert_array_equal(picture, pictures[0])


def test_depths_of_several_fields_add_and_their_colours_mix():
    """A blob of one third red and two thirds blue absorption is one of their sum in the mean
    colour; the order of the fields is arbitrary, and a field that is nowhere visible changes
    nothing."""
    layout = physical((16, 16, 16), 2)
    camera = Camera(size=(24, 24))

    def linear(colour, share):
        """Absorption in proportion to the values: `share` of KAPPA at 1."""
        return TransferFunction(
            ((0.0, colour, 0.0), (1.0, colour, float(-np.expm1(-0.01 * share * KAPPA))))
        )

    red = (1.0, 0.0, 0.0)
    blue = (0.0, 0.0, 1.0)
    mean = (1 / 3, 0.0, 2 / 3)
    values = placed(layout, blob)
    nothing = placed(layout, lambda *x: 0 * blob(*x))

    def light(*media):
        volume = Volume(layout, camera, tuple(transfer for transfer, _ in media))
        return np.asarray(jax.jit(volume.light)(*(values for _, values in media)))

    both = light((linear(red, 1 / 3), values), (linear(blue, 2 / 3), values))
    assert_allclose(both, light((linear(mean, 1.0), values)), atol=1e-13)
    turned = light(
        (linear(blue, 2 / 3), values), (linear(red, 1 / 3), values), (linear(mean, 1.0), nothing)
    )
    assert_allclose(turned, both, atol=1e-13)


@pytest.mark.parametrize("azimuth", [0, 90, 180])
def test_the_nearer_of_two_opaque_plates_is_seen(azimuth):
    """Plates of value -1 and 1 across x and y: from each side the one that is nearer hides the
    other."""
    layout = physical((16, 16, 16), 4)

    def plates(x, y, z):
        along = x if azimuth in (0, 180) else y
        near = abs(along - 0.25) < 0.1
        far = abs(along - 0.75) < 0.1
        return jnp.where(near, -1.0, jnp.where(far, 1.0, 0.0)) + 0 * (x + y + z)

    red = (1.0, 0.0, 0.0)
    green = (0.0, 1.0, 0.0)
    opaque = TransferFunction(
        ((-0.5, red, 0.999), (-0.4, red, 0.0), (0.4, green, 0.0), (0.5, green, 0.999))
    )
    picture = picture_of(
        Volume(layout, Camera(azimuth, 0, zoom=1.0, size=(21, 21)), (opaque,)), plates
    )
    # The camera stands beyond the far or the near face.
    seen = (0, 255, 0) if azimuth in (0, 90) else (255, 0, 0)
    assert tuple(picture[10, 10]) == seen and tuple(picture[0, 0]) == (0, 0, 0)


def test_the_picture_stands_upright_and_right_handed():
    """Seen from x, y points to the right and z up."""
    layout = physical((16, 16, 16), 2)

    def dot(x, y, z):
        return jnp.exp(-((x - 0.5) ** 2 + (y - 0.75) ** 2 + (z - 0.75) ** 2) / 0.005)

    picture = picture_of(
        Volume(layout, Camera(0, 0, zoom=1.0, size=(40, 40)), (LINEAR,)), dot
    ).astype(int)
    row, column = np.unravel_index(picture.sum(-1).argmax(), (40, 40))
    # A quarter of the box from the middle; the picture is sqrt(3) boxes wide.
    assert (column - 19.5, 19.5 - row) == pytest.approx((0.25 * 40 / 3**0.5,) * 2, abs=1)
    framed = picture_of(
        Volume(layout, Camera(0, 0, zoom=1.0, size=(40, 40)), (LINEAR,), outline=True), dot
    )
    assert (
        min(framed[24, 8].min(), framed[31, 15].min())
        > 80
        > framed[24, 4:7].max()
        == framed[24, 10:13].max()
    )


def test_no_field_is_gathered():
    """A device sends one plane to a neighbour and pieces of images: nothing grows with the volume.
    The planes of two fields are one message, because nothing would order two."""
    sent = []
    messages = []
    camera = Camera(size=(16, 16))
    for n, number in ((16, 1), (32, 1), (16, 2)):
        layout = physical((n, n, n), 4)
        volume = Volume(layout, camera, (TransferFunction(),) * number)
        found = collectives(
            jax.jit(volume.image).lower(*[placed(layout, waves)] * number).compile()
        )
        sent.append(sum(kind.bytes for kind in found.values()))
        messages.append(found["collective-permute"].count)
    assert sent[1] < 4.5 * sent[0] and sent[0] > 0  # images and planes: four times, not eight
    assert messages == [1, 1, 1]
