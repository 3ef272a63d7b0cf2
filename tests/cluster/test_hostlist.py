import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster.hostlist import expand, tasks_per_node

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("node1", "node1"), ("node[1-3]", "node1 node2 node3"), ("gpu-[1-2]-ib", "gpu-1-ib gpu-2-ib"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"), ("tux[01-02].cluster.org", "tux01.cluster.org tux02.cluster.org"),
        ("n[098-101]", "n098 n099 n100 n101"), ("n[8-11]", "n8 n9 n10 n11"), ("n[1,3-4,07]", "n1 n3 n4 n07"),
        ("a1,b[2-3],c", "a1 b2 b3 c"), ("a[1,2],a[5-6]x,login", "a1 a2 a5x a6x login"), ("[1-2]", "1 2"), ("", ""),
    ],
)  # fmt: skip
def test_every_bracket_form(hostlist, names):
    assert expand(hostlist) == names.split()


@pytest.mark.parametrize(
    "hostlist", ["a[1-2", "a1]", "a[2-1]", "a[]", "a[x-y]", "a[[1]]", "n[²]", "n[1-1000000000]", "n[0-9999][0-9999]"]
)
def test_what_is_no_host_list_or_too_long_to_write_out_is_refused(hostlist):
    with pytest.raises(ValueError, match=r"host list|names more than 1048576 nodes"):
        expand(hostlist)


prefix = st.text("abc-.", min_size=1, max_size=4)


@given(st.lists(st.tuples(prefix, st.integers(0, 999), st.integers(0, 5), st.integers(1, 4), prefix), min_size=1))
def test_ranges_expand_to_what_they_were_made_of(parts):
    text = ",".join(f"{a}[{lo:0{w}d}-{lo + n:0{w}d}]{b}" for a, lo, n, w, b in parts)
    assert expand(text) == [f"{a}{lo + i:0{w}d}{b}" for a, lo, n, w, b in parts for i in range(n + 1)]


def test_tasks_per_node():
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert tasks_per_node("4") == [4]
    for text in ("", "2x", "(x2)", "²", "1(x1000000000)", "1(x99999999999999999999999)"):
        with pytest.raises(ValueError, match=r"tasks per node|names more than 1048576 nodes"):
            tasks_per_node(text)
