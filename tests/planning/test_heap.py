"""Where arrays lie in a heap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.planning.heap import Span, heap, with_state

spans = st.lists(
    st.builds(
        lambda size, begin, length: Span(float(size), begin, begin + length, ""),
        st.integers(1, 50),
        st.integers(0, 20),
        st.integers(0, 10),
    ),
    max_size=12,
)


@given(spans)
def test_no_smaller_than_the_worst_moment_and_no_larger_than_all(arrays) -> None:
    worst = max((sum(s.bytes for s in arrays if s.begin <= t <= s.end) for t in range(31)), default=0)
    assert worst <= heap(arrays) <= sum(s.bytes for s in arrays)


def test_arrays_that_never_meet_share() -> None:
    assert heap([Span(5, 0, 3, ""), Span(4, 4, 6, ""), Span(3, 7, 9, "")]) == 5


def test_the_largest_is_placed_first_and_gaps_are_used() -> None:
    """5 and 4 lie at the bottom, one after the other; 3 meets both and lies above 5. In the second heap 5.5 lies
    above 6, and 5 goes below it when 6 is gone."""
    assert heap([Span(4, 0, 1, ""), Span(3, 0, 2, ""), Span(5, 2, 3, "")]) == 8
    assert heap([Span(6, 0, 1, ""), Span(5.5, 1, 2, ""), Span(5, 2, 3, "")]) == pytest.approx(11.5)


def test_what_fits_goes_into_the_state_while_nobody_reads_it() -> None:
    state = [Span(8, 0, 2, "", state=True), Span(8, 6, 9, "", state=True)]
    assert with_state([*state, Span(8, 3, 5, "")]) == 8
    assert with_state([*state, Span(8, 2, 5, "")]) == 16
    assert with_state([*state, Span(3, 3, 5, ""), Span(3, 3, 5, "")]) == 11
