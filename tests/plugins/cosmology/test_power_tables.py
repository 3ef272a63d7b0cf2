"""Tables of P(k) and of transfer functions: what is refused; files at random."""

from pathlib import Path

import numpy as np
import pytest
from gravity_cases import WAVE, simulation
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tiers import slow

from simulator.archive.stored_state import RunInputs
from simulator.errors import UserError
from simulator.physics.initial.tables import TWO, read_table
from simulator.plugins.cosmology.linear_power import (
    NAMED,
    TOTAL,
    LinearPowerSettings,
    linear_power,
    sigma,
)


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_column_of_total_matter_is_found_by_name_or_by_number(tmp_path):
    """Files of axionCAMB, whose T changes its sign, and of CLASS."""

    def read(text: str) -> tuple[list[float], str]:
        path = write(tmp_path, text)
        table = read_table(RunInputs(), "key", path, "T", TOTAL, NAMED, signed=True)
        return list(table.values), table.column

    assert read("1 1\n2 -0.5\n3 0\n") == ([1, 0.5], "")
    assert read("1 9 9 9 9 9 0.7\n2 9 9 9 9 9 0.5\n") == ([0.7, 0.5], "")
    assert read("# 1:k (h/Mpc)  2:d_cdm  3:d_tot\n1 8 4\n2 9 5\n") == ([4, 5], "d_tot")
    assert read("k total CDM\n1 4 8\n2 5 9\n") == ([4, 5], "total")
    for text in ("1 1\n2 9 9 9 9 9 0.5\n", "1 2 3\n2 3 4\n", "# a d_tot\n1 2 3\n2 3 4\n"):
        with pytest.raises(UserError, match=r"^key: .*txt:\d: "):
            read(text)


UNITS = ("model.units=mpc_h_km_s_msun_h", "grid.box=100,100,100", "model.hbar_over_m=0.1")
GROWING = "model.cosmology={start: 0.05, hubble: 100}"


@pytest.mark.parametrize(
    "case, message",
    [
        ("table", r"table: .*txt: covers k = .* of the grid's modes, 0.0628319 to 0.3264"),
        ("transfer_table", r"transfer_table: .*txt: covers k = .* of the grid's modes, 0.0628319 "),
    ],
)
@pytest.mark.parametrize("rows", ["1e-9 1\n1e-8 1\n", "1e7 1\n1e8 1\n", "0.0630 1\n0.0631 1\n"])
def test_a_table_beside_the_modes_of_the_grid_is_refused(tmp_path, case, message, rows):
    """It would start a box without structure."""
    path = write(tmp_path, rows)
    start = f"initial={{kind: cosmological, {case}: {path}, h: 0.7}}"
    with pytest.raises(UserError, match=message) as refusal:
        _ = simulation(WAVE, GROWING, *UNITS, start).state
    assert len(str(refusal.value).splitlines()) == 1


def spectrum(k: np.ndarray) -> np.ndarray:
    """Close to P(k) in (Mpc/h)^3 at a = 1: sigma_8 is 0.39."""
    return 2.5e4 * 50 * k / (1 + (50 * k) ** 2) ** 1.4


def rows(k: np.ndarray, values: np.ndarray) -> bytes:
    return "\n".join(f"{x:g} {y:g}" for x, y in zip(k, values, strict=True)).encode()


def start_with(tmp_path: Path, way: str, k: np.ndarray, values: np.ndarray, header: str = ""):
    """Builds the start of a box of 100 Mpc/h from a table."""
    np.savetxt(tmp_path / "table.txt", np.stack([k, values], 1), header=header)
    start = f"initial={{kind: cosmological, {way}: {tmp_path / 'table.txt'}, h: 0.7}}"
    return simulation(WAVE, GROWING, *UNITS, start).state


K = np.geomspace(1e-4, 20, 400)


@pytest.mark.parametrize(
    "way, k, values, message",
    [
        (
            "table",
            K,
            lambda k: 1e-4 * spectrum(k),
            r"has sigma_8 = 0.00\d*; P \(length\^3\) at a = 1",
        ),
        ("table", K, lambda k: k**3 * spectrum(k) / (20 + 20 * k), r"has sigma_8 = 0.0\d"),
        (
            "transfer_table",
            K[K > 0.06],
            lambda k: 1 / (1 + (30 * k) ** 2),
            "do not cover the integral",
        ),
        ("transfer_table", K, lambda k: k**2 / (1 + (50 * k) ** 2), "T.k. rises from .*by k\\^2"),
    ],
)
def test_a_table_that_cannot_be_what_it_is_taken_for_is_refused(tmp_path, way, k, values, message):
    with pytest.raises(UserError, match=message):
        start_with(tmp_path, way, k, values(k))


def test_the_units_in_a_header_are_compared_with_those_of_the_run(tmp_path):
    start_with(tmp_path, "table", K, spectrum(K), "k (h/Mpc) P")
    with pytest.raises(UserError, match=r"its header names other units; set table_units: mpc$"):
        start_with(tmp_path, "table", K, spectrum(K), "k (1/Mpc) P")
    with pytest.raises(UserError, match=r"its header has k in 1/Mpc; h/Mpc is needed"):
        start_with(tmp_path, "transfer_table", K, 1 / (1 + K), "k (1/Mpc) T")


def test_densities_of_class_are_divided_by_k_squared(tmp_path):
    fit = 1 / (1 + (30 * K) ** 2)
    plain = start_with(tmp_path, "transfer_table", K, fit).fields["psi"]
    named = start_with(tmp_path, "transfer_table", K, -3 * K**2 * fit, "1:k (h/Mpc) 2:d_tot")
    assert_allclose(named.fields["psi"], plain, rtol=1e-9, atol=1e-9 * abs(plain).max())


ODD = ("nan", "inf", "-1", "0", "1e300", "-1e300", "1D5", "1d-400", "x", "1,5", "#", "!", "é")
ODDER = ("\0", "١", "1_0", "1e-400", "0x1", "-0", "1-100", "\ufeff")
HEADERS = (
    "# k P",
    "k,total",
    "1:k 2:d_tot",
    "# k (1/Mpc) T",
    "! k/h h/Mpc",
    "\ufeff",
    "\ufffd",
    "k",
)
SEPARATORS = (" ", "\t", ",", " , ")
SHAPES = (spectrum, lambda k: 1 / (1 + (30 * k) ** 2)) * 3 + (lambda k: k**2, lambda k: k**-3)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Bytes, or rows of a function of k, perhaps a spectrum or a transfer function, in one to 16
    columns, with odd words, headers and separators."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=80))
    columns = draw(st.sampled_from((*[2] * 8, 1, 3, 7, 9, 13, 16)))
    count = draw(st.sampled_from((40, 40, 40, 40, 10, 2, 1, 0)))
    first = draw(st.sampled_from((*[-4.0] * 5, -5.0, -1.5, -60.0)))
    last = draw(st.sampled_from((*[1.0] * 5, 3.0, -1.0, 60.0)))
    k = np.logspace(first, last, count)
    size = draw(st.sampled_from((*[1.0] * 5, 1e-3, 1e5)))
    values = size * draw(st.sampled_from(SHAPES))(k)
    form = draw(st.sampled_from(("{:g}", "{:.3e}", "{:.9E}")))
    table = np.stack([k, *[values] * (columns - 1)], 1)
    lines = [[form.format(number) for number in row] for row in table]
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2))) if count else 0):
        line = lines[draw(st.integers(0, count - 1))]
        line[draw(st.integers(0, columns - 1))] = draw(st.sampled_from(ODD + ODDER))
    separator = draw(st.sampled_from(SEPARATORS))
    header = draw(st.just([]) | st.lists(st.sampled_from(HEADERS), max_size=2))
    end = draw(st.sampled_from(("\n", "\r\n", "\r")))
    return end.join([*header, *map(separator.join, lines)]).encode()


@pytest.fixture(scope="module")
def expanding():
    """A box of 100 Mpc/h."""
    return simulation(WAVE, GROWING, *UNITS).model


@pytest.mark.parametrize("way", ["table", "transfer_table"])
@pytest.mark.parametrize("count", [30, slow(300)])
def test_any_file_is_a_spectrum_or_refused_in_a_line(tmp_path, expanding, way: str, count: int):
    """Rows within the numbers that settings may have; P above zero and finite on all modes that the
    file does not leave out; sigma_8 possible, or as asked for to the 2 % of sigma^2 beyond."""
    path = tmp_path / "table.txt"
    columns = TWO if way == "table" else TOTAL
    names: tuple[str, ...] = () if way == "table" else NAMED
    k = np.geomspace(2 * np.pi / 100, np.sqrt(3) * 3 * 2 * np.pi / 100, 20)
    outcomes = []

    @settings(max_examples=count)
    @given(texts())
    @example(rows(K, spectrum(K)))
    @example(rows(K, SHAPES[1](K)))
    def held(content: bytes) -> None:
        path.write_bytes(content)
        try:
            table = read_table(RunInputs(), way, path, "P", columns, names, signed=way != "table")
            assert (np.diff(table.k, prepend=0) > 0).all() and table.k[-1] < 1e51
            assert np.isfinite(table.values).all() and (table.values > 0).all()
            fit = LinearPowerSettings.model_validate({way: path, "h": 0.7})
            power = np.asarray(linear_power(fit, expanding, RunInputs())(k))
        except UserError as refusal:
            assert str(path) in str(refusal) and len(str(refusal).splitlines()) == 1
            outcomes.append(False)
            return
        assert np.isfinite(power).all() and (power >= 0).all()
        assert table.first <= k[0] * 1.001 and table.last >= k[-1] / 1.001
        fine = np.geomspace(table.k[0], table.k[-1], 100_000)
        deviation = sigma(fine, np.asarray(linear_power(fit, expanding, RunInputs())(fine)))
        assert deviation < 3.1 if way == "table" else abs(deviation / 0.811 - 1) < 0.02
        outcomes.append(True)

    held()
    print(way, sum(outcomes), "of", len(outcomes), "files are read")
    assert any(outcomes) and not all(outcomes)
