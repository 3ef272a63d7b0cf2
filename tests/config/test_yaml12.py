# ruff: noqa: E501 - tables of texts and messages
"""The rules of YAML 1.2's core schema, against the tables of the specification."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.config import yaml12
from simulator.config.yaml12 import Document, dump_yaml, parse_yaml
from simulator.errors import UserError

# https://yaml.org/spec/1.2.2/#103-core-schema, and what YAML 1.1 would have made of it.
SCALARS = [
    ("null", None),
    ("Null", None),
    ("~", None),
    ("", None),
    ("true", True),
    ("FALSE", False),
    ("no", "no"),
    ("on", "on"),
    ("y", "y"),
    ("0", 0),
    ("-19", -19),
    ("+3", 3),
    ("010", 10),
    ("0o14", 12),
    ("0x1F", 31),
    ("0b11", "0b11"),
    ("1_000", "1_000"),
    ("12:30:00", "12:30:00"),
    ("2001-12-14", "2001-12-14"),
    ("=", "="),
    ("1e-3", 1e-3),
    ("1E5", 1e5),
    ("-1.5e+3", -1500.0),
    ("0.", 0.0),
    (".5", 0.5),
    ("+12.03", 12.03),
    (".inf", math.inf),
    ("-.Inf", -math.inf),
    ("+.INF", math.inf),
    ("1.e", "1.e"),
    ("2*pi", "2*pi"),
    ("1/1600", "1/1600"),
    ("'1'", "1"),
    ('"true"', "true"),
    ("!!str 1", "1"),
    ("!!float 1", 1.0),
    ("!!int 7", 7),
]


@pytest.mark.smoke
@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_are_those_of_the_core_schema(text: str, value: object):
    read = parse_yaml(f"a: {text}\n", "x").value["a"]
    assert read == value
    assert type(read) is type(value)


def test_aliases_repeat_values_but_not_without_limit_an_empty_text_is_null_and_nan_a_number():
    assert parse_yaml("a: &x {b: 1}\nc: *x", "x").value == {"a": {"b": 1}, "c": {"b": 1}}
    assert parse_yaml("# only a comment\n", "x").value is None
    assert math.isnan(parse_yaml("a: .NaN", "x").value["a"])
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    with pytest.raises(UserError, match="aliases multiply them"):
        parse_yaml(bomb, "x")


def test_every_key_and_entry_has_its_line():
    document = parse_yaml("a: 1\nb:\n  c: [1,\n    2]\n  d: {e: x}\n", "x")
    assert document == Document(
        {"a": 1, "b": {"c": [1, 2], "d": {"e": "x"}}},
        {
            (): 1,
            ("a",): 1,
            ("b",): 2,
            ("b", "c"): 3,
            ("b", "c", 0): 3,
            ("b", "c", 1): 4,
            ("b", "d"): 5,
            ("b", "d", "e"): 5,
        },
    )


REFUSED = [
    ("a: 1\nb: 2\na: 3", "x:3: a: given twice, first on line 1; keep one of them"),
    ("a:\n  b: 1\n  b: 2", "x:3: a.b: given twice, first on line 2; keep one of them"),
    ("a: 1\n<<: {b: 1}", "x:2: <<: merge keys are not part of YAML 1.2; write the keys out"),
    ("a: &x {b: *x}", "x:1: a.b: an alias that contains itself; write the values out"),
    ("a: *x", "x:1: unreadable YAML: found undefined alias 'x'"),
    ("a: 1\n--- \nb: 1", "x:2: unreadable YAML: more than one document ('---'); keep one"),
    ("1: a", "x:1: a key must be a name; put quotes around it if it is meant as one"),
    ("? [a]\n: b", "x:1: a key must be a name; put quotes around it if it is meant as one"),
    (
        "a: !!python/name:os.system ''",
        "x:1: a: the tag !!python/name:os.system is not allowed; leave it out",
    ),
    ("a: !mine 1", "x:1: a: the tag !mine is not allowed; leave it out"),
    ("a: !!int one", "x:1: a: 'one' is no int"),
    ("a: 1" + 1000 * "0", "x:1: a: a whole number of more than 300 digits"),
    ("a: b: c", "x:1: unreadable YAML: mapping values are not allowed here"),
    (
        "a: 1\n\tb: 2",
        "x:2: unreadable YAML: while scanning for the next token, found a tab (indent with spaces) that cannot start any token",
    ),
    ("a: 1\nb: \x07", "x:2: unreadable YAML: a character that YAML does not allow"),
    (
        "a: *\ufeff",
        "x:1: unreadable YAML: while scanning an alias, expected alphabetic or numeric character, but found a byte order mark (U+FEFF)",
    ),
    ("[" * 3_000, "x: unreadable YAML: nested too deeply"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refusals_name_line_and_cure(text: str, message: str):
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "x")
    assert str(caught.value) == message


def test_all_mistakes_of_a_text_are_reported_at_once():
    with pytest.raises(UserError) as caught:
        parse_yaml("a: 1\na: 2\nb: !x 1\nb: 2", "x")
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["2", "3", "4"]


@given(st.text() | st.text(alphabet="ab:-[]{}&*!?|>'\"#%@,~ \n\t01.e", max_size=60))
def test_no_text_raises_anything_but_a_user_error(text: str):
    try:
        parse_yaml(text, "x")
    except UserError as error:
        assert str(error).startswith("x:")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_reads_back_exactly(value: object):
    if isinstance(value, dict) and "<<" in value:
        return
    assert _same(parse_yaml(dump_yaml({"a": value}), "x").value["a"], value)


@given(st.text(alphabet="0123456789+-._eExobnfayNsTrueFls~:=", max_size=8))
def test_text_that_looks_like_something_else_stays_text_for_any_reader(text: str):
    written = dump_yaml({"a": text})
    assert parse_yaml(written, "x").value["a"] == text
    assert yaml.safe_load(written)["a"] == text


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    "text", ["a: [" + 300_000 * "1, ", "a:\n" + 300_000 * "- 1\n" + "["], ids=["flow", "block"]
)
def test_a_list_without_an_end_is_refused_while_it_is_scanned(monkeypatch, text: str):
    """Before the end is seen, which is no YAML."""
    monkeypatch.setattr(yaml12, "MOST_NODES", 100)
    with pytest.raises(UserError, match=r"x:\d+: unreadable YAML: more than 100 values"):
        parse_yaml(text, "x")


@pytest.mark.parametrize("text", ['"a\\nb": 1\n"a\\nb": 2', "a: !<\x85> 1", '"\\e[2J": !!x 1'])
def test_keys_and_tags_are_printed_escaped_on_one_line(text: str):
    with pytest.raises(UserError) as refusal:
        parse_yaml(text, "x")
    assert str(refusal.value).isprintable(), "no control character, and no line break"
