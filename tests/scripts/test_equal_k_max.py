"""Grids of equal k_max, their flow, and its errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from peers import equal_k_max, perturbed_vortex


def test_grids_of_a_k_max_are_the_smallest_with_fast_transforms():
    assert [equal_k_max.points(name, 42) for name in equal_k_max.CHOICES] == [128, 90, 90, 90]
    assert equal_k_max.points("phase_shift", equal_k_max.SPHERE * 42) == 100
    assert equal_k_max.points("two_thirds", 4) == 16  # 14 is no product of 2, 3 and 5


def test_the_flow_is_free_of_divergence_and_its_energy_is_read_in_shells():
    x = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    velocity = perturbed_vortex.start(x[:, None, None], x[:, None], x)
    k = np.fft.fftfreq(12, 1 / 12)
    slopes = (k[:, None, None], k[:, None], k)
    divergence = sum(
        slope * np.fft.fftn(values) for slope, values in zip(slopes, velocity, strict=True)
    )
    assert abs(divergence).max() < 1e-10
    vortex = 1 / 8  # in modes with k^2 = 3
    waves = 3 * 0.1**2 / 4  # with k^2 = 1
    found = perturbed_vortex.read(velocity, nu=0.5)
    assert found["energy"] == pytest.approx(vortex + waves, rel=1e-12)
    assert found["dissipation"] == pytest.approx(3 * vortex + waves, rel=1e-12)
    assert found["spectrum"][:4] == pytest.approx([0, waves, vortex, 0], abs=1e-12)


def peer(name: str, n: int, dissipation: float, **scheme: str) -> SimpleNamespace:
    problem = {"shape": [n] * 3, "stop": 2.0, "viscosity": 0.1, **scheme}
    about = {"steps": 10, "dissipation": dissipation, "spectrum": [0.0, 1.0, dissipation, 5.0]}
    return SimpleNamespace(name=name, problem=problem, about=about, times=[n, n, 100.0])


def test_rows_tell_errors_of_a_grid_from_those_of_aliasing():
    started = [
        peer("fluidsim", 6, 0.75, scheme="RK4_phaseshift_random"),
        peer("simulator, spherical", 6, 1.5, dealias="spherical"),
        peer("simulator, phase_shift", 6, 1.25, dealias="phase_shift"),
        peer("simulator, none", 6, 1.0, dealias="none"),
        peer("simulator, phase_shift", 12, 1.0, dealias="phase_shift"),
    ]
    rows = equal_k_max.rows(3, started, peer("finer", 24, 1.0))
    assert [row["ratios"] for row in rows[::4]] == [[1, 2], [0.5, 1]]
    assert [row["steps_per_time"] for row in rows] == [5] * 5
    assert [row["seconds_per_time"] for row in rows] == [30, 30, 30, 30, 60]
    errors = [tuple(row["errors"].values()) for row in rows]
    assert errors[0] == pytest.approx((0.25, 0.25, 0.5))
    assert errors[1] == (0.5, 0.5, None)  # what the others are compared with
    assert errors[2] == pytest.approx((0.25, 0.25, 1 / 6))
    assert errors[3] == errors[4] == (0, 0, None)  # other modes; no exact truncation beside it
    assert "1.7e-01" in equal_k_max.line(rows[2])
