"""Tables of E(k): what is read, and what is refused, with its line."""

from pathlib import Path

import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose, assert_array_equal

from simulator.archive.stored_state import RunInputs
from simulator.errors import UserError
from simulator.physics.initial.tables import read_table


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("", 1, "two rows or more of k and E above zero are needed, not 0"),
        ("# only words\n1 2\n", 2, "two rows or more"),
        ("1 2 3\n4 5 6\n", 1, "2 columns are needed, k and E, not 3; keep these two"),
        ("k E\nk E\n1 2\n3 4\n", 2, "'k' is not a finite number"),
        ("1 2\nk E\n3 4\n", 2, "'k' is not a finite number"),
        ("1,5 2,0\n2,5 3,0\n", 1, "2 columns are needed, k and E, not 3"),
        ("1 2\n3,4 5\n", 2, "'4 5' is not a finite number"),
        ("1 1-100\n2 3\n", 1, "'1-100' is not a finite number"),
        ("-4.9 -14.5\n-4.8 -14.4\n", 1, "if these are logarithms, write k and E themselves"),
        ("4.9 -14.5\n5.8 -14.4\n", 1, "if these are logarithms, write k and E themselves"),
        ("1 0\n2 1\n3 0\n", 3, "two rows or more of k and E above zero are needed, not 1"),
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
        ("1 -1\n2 1\n", 1, "E = -1 has to be zero or above"),
        ("1 1\n2 1e300\n", 2, "at most 1e"),
        (b"\x89HDF\r\n\x1a\n\xff\xfe 1\n", 1, "columns are needed|is not a finite number"),
    ],
)
def test_a_bad_table_is_refused_with_its_line(tmp_path, text, line: int, message: str):
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=rf"^table: {path}:{line}: .*({message})") as refusal:
        read_table(RunInputs(), "table", path, "E")
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "1 2\n10 3\n",
        "1.0D+00 2.0d0\n1.d1 +3\n",
        "1, 2\n10,3\n",
        "\ufeff1 2\n10 3\n",
        "k/h P\n1 2\n10 3\n",
        "k,P\n1,2\n10,3\n",
        "! k P\n1 2 ! the first\n10 3\n",
        "% k P\n1\t2\r\n10 3\r\n",
    ],
)
def test_tables_of_other_programs_are_read(tmp_path, text: str):
    table = read_table(RunInputs(), "table", write(tmp_path, text), "P")
    assert_array_equal(table[:2], [[1, 10], [2, 3]])
    assert table[-2:] == (1, 10)


def test_a_row_of_zero_says_that_there_is_nothing_beyond(tmp_path):
    """A zero between rows is 1e-30 of the largest value, which a logarithm can be taken of."""
    path = write(tmp_path, "1 0\n2 3\n3 0\n4 1\n5 0\n6 0\n")
    table = read_table(RunInputs(), "table", path, "E")
    assert_allclose(table[:2], [[2, 3, 4], [3, 3e-30, 1]], rtol=1e-15)
    assert table[-2:] == (0, np.inf)


@pytest.mark.parametrize("normalise", ["per_shell", "total"])
@pytest.mark.parametrize("rows", ["1e-9 1\n1e-8 1\n", "1e7 1\n1e8 1\n", "0.0630 1\n0.0631 1\n"])
def test_a_table_beside_the_modes_of_the_grid_is_refused(tmp_path, normalise, rows):
    """It would start a flow without energy."""
    table = str(write(tmp_path, rows))
    start = {"kind": "random", "spectrum": "table", "table": table, "normalise": normalise}
    zero = "the spectrum of velocity is zero on all of this grid's modes"
    with pytest.raises(UserError, match=zero) as refusal:
        _ = flow(8, 8, 8, initial=start, grid={"box": [100.0] * 3}).state
    assert len(str(refusal.value).splitlines()) == 1
