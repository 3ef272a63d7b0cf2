"""Tables of E(k), P(k) and transfer functions: what is refused, with its line; files that were
changed at random."""

from pathlib import Path

import numpy as np
import pytest
from gravity_cases import WAVE, simulation
from numpy.testing import assert_array_equal
from tiers import slow

from simulator.archive.stored_state import RunInputs
from simulator.errors import UserError
from simulator.physics.initial.linear_power import TOTAL
from simulator.physics.initial.tables import read_table

GOOD = "# k and the function\n0.1 1e-3\n1 1  # the peak\n\n10 1e-2\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "two rows or more of k and E are needed, not 0"),
        ("# only words\n1 2\n", 2, "two rows or more"),
        ("1 2 3\n4 5 6\n", 1, "2 columns are needed, k and E, not 3"),
        ("1 2\n4 5 6\n", 2, "2 columns"),
        ("1 a\n2 3\n", 1, "'a' is not a finite number"),
        ("1 nan\n2 3\n", 1, "'nan' is not a finite number"),
        ("1 2\ninf 3\n", 2, "'inf' is not"),
        ("1 1_0\n2 3\n", 1, "'1_0' is not"),
        ("2 1\n1 1\n", 2, "k = 1 has to be above 2"),
        ("2 1\n2 1\n", 2, "k = 2 has to be above 2"),
        ("0 1\n2 1\n", 1, "k = 0 has to be above 0"),
        ("-1 1\n2 1\n", 1, "k = -1 has to be above 0"),
        ("1 1\n1e300 1\n", 2, r"k = 1e\+300 has to lie between"),
        ("1 -1\n2 1\n", 1, "E = -1 has to be above zero"),
        ("1 1\n2 0\n", 2, "E = 0 has to be above zero"),
        ("1 1\n2 1e300\n", 2, "at most 1e"),
        (b"\x89HDF\r\n\x1a\n\xff\xfe 1\n", 1, "columns are needed|is not a finite number"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path, text, line: int, message: str):
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=rf"^table: {path}:{line}: .*({message})") as refusal:
        read_table(RunInputs(), "table", path, "E")
    assert len(str(refusal.value).splitlines()) == 1


def test_transfer_functions_may_be_zero_but_not_negative(tmp_path):
    def read(text: str) -> np.ndarray:
        return read_table(RunInputs(), "key", write(tmp_path, text), "T", TOTAL, zeros=True)[1]

    assert_array_equal(read("1 1\n2 0.5\n3 0\n"), [1, 0.5, 0])
    assert_array_equal(read("1 9 9 9 9 9 0.7\n2 9 9 9 9 9 0.5\n"), [0.7, 0.5])
    refused = ("1 1\n2 -0.5\n", "1 0\n2 1\n", "1 1\n2 9 9 9 9 9 0.5\n", "1 2 3\n2 3 4\n")
    for text in refused:
        with pytest.raises(UserError, match=r"^key: .*txt:\d: "):
            read(text)


UNITS = ("model.units=mpc_h_km_s_msun_h", "grid.box=100,100,100", "model.hbar_over_m=0.1")
GROWING = "model.cosmology={start: 0.05, hubble: 100}"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("random", "the spectrum of velocity is zero on all of this grid's modes"),
        ("random, total", "the spectrum of velocity is zero on all of this grid's modes"),
        ("table", r"table: P\(k\) is zero on all modes of this grid, which begin at k = 0.0628"),
        ("transfer_table", r"transfer_table: P\(k\) is zero on all modes of this grid"),
    ],
)
@pytest.mark.parametrize("rows", ["1e-9 1\n1e-8 2\n", "1e7 1\n1e8 2\n", "0.0630 1\n0.0631 1\n"])
def test_a_table_beside_the_modes_of_the_grid_is_refused(tmp_path, case, message, rows):
    """It would start a flow without energy, or a box without structure."""
    path = write(tmp_path, rows)
    start = f"initial={{kind: cosmological, {case}: {path}, h: 0.7}}"
    overrides: tuple[str, ...] = (GROWING, *UNITS, start)
    if case.startswith("random"):
        way = "normalise: total" if case.endswith("total") else "normalise: per_shell"
        start = f"initial={{kind: random, spectrum: table, table: {path}, {way}}}"
        overrides = ("model={kind: navier_stokes, viscosity: 0.1}", UNITS[1], start)
    with pytest.raises(UserError, match=message) as refusal:
        _ = simulation(WAVE, *overrides).state
    assert len(str(refusal.value).splitlines()) == 1


TOKENS = ("nan", "inf", "-1", "0", "1e300", "x", "1,5", "", "#", "\n", "\0", "é", "1e-400", "3 4")


def changed(text: str, rng: np.random.Generator) -> str:
    """The text with one to three words, characters or lines replaced, dropped or exchanged."""
    for _ in range(rng.integers(1, 4)):
        lines = text.split("\n")
        row = int(rng.integers(len(lines)))
        words = lines[row].split(" ")
        match rng.integers(5):
            case 0:
                words[rng.integers(len(words))] = str(rng.choice(TOKENS))
                lines[row] = " ".join(words)
            case 1:
                at = int(rng.integers(len(lines[row]) + 1))
                lines[row] = lines[row][:at] + chr(rng.integers(128)) + lines[row][at + 1 :]
            case 2:
                del lines[row]
            case 3:
                lines.insert(int(rng.integers(len(lines) + 1)), lines[row])
            case _:
                other = int(rng.integers(len(lines)))
                lines[row], lines[other] = lines[other], lines[row]
        text = "\n".join(lines)
    return text


@pytest.mark.parametrize("count", [30, slow(300)])
def test_tables_changed_at_random_are_refused_or_make_sense(tmp_path, count: int):
    rng = np.random.default_rng(count)
    accepted = 0
    for _ in range(count):
        path = write(tmp_path, changed(GOOD, rng))
        try:
            k, values = read_table(RunInputs(), "table", path, "E")
        except UserError as refusal:
            assert str(refusal).startswith(f"table: {path}:")
            assert len(str(refusal).splitlines()) == 1
            continue
        accepted += 1
        assert_array_equal(np.stack([k, values], 1), np.loadtxt(path, ndmin=2))
        assert (np.diff(k, prepend=0) > 0).all() and (values > 0).all()
        assert np.isfinite(values).all() and k[-1] < 1e50
    assert 0.02 * count < accepted < 0.9 * count
