"""A start from a cutout of a turbulence database: the velocity on a part of a larger grid, made
periodic.

initial: {kind: python, path: configs/cutout.py, function: start,
          parameters: {file: /data/isotropic1024coarse.h5, dataset: Velocity_0001, source: "words"}}

The data set has the axes z, y, x and component, as the cutouts of the Johns Hopkins Turbulence
Databases (Y. Li et al., J. Turbulence 9, N31 (2008)). The grid of the run has as many points as the
data set."""

import h5py
import numpy as np


def start(x, y, z, file, dataset, taper=0.1, source=""):
    """The deviation from the mean velocity, which falls to 0 at the faces over the fraction `taper`
    of each side. The run then removes the divergence that the fall makes."""
    with h5py.File(file) as opened:
        velocity = np.moveaxis(opened[dataset][...].astype(float), (3, 2, 1, 0), (0, 1, 2, 3))
    velocity -= velocity.mean((1, 2, 3), keepdims=True)
    for axis in (1, 2, 3):
        n = velocity.shape[axis]
        inwards = (
            np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5
        )  # in grid spacings from the nearer face
        window = np.sin(np.pi / 2 * np.clip(inwards / (taper * n), 0, 1)) ** 2
        velocity *= np.expand_dims(window, tuple(a for a in range(4) if a != axis))
    return {"velocity": velocity}
