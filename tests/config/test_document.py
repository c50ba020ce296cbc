"""YAML, narrowed: plain values of 1.2, lines, duplicates, bounded aliases."""

import json
import math
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from grid.config.document import MAX_BYTES, MAX_VALUES, dotted, plain_value, read_document
from grid.model import Reason


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("tRUE", "tRUE"),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("-7", -7),
        ("+7", 7),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("2s", "2s"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = plain_value(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_read_as_such() -> None:
    found = plain_value(".NaN")
    assert isinstance(found, float)
    assert math.isnan(found)


_CHARACTERS = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
_TEXT = st.text(_CHARACTERS)
# A key that YAML takes without a question mark has 1024 characters at most, and an escape is six.
_KEY = st.text(_CHARACTERS, min_size=1, max_size=150)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEY, inner, max_size=4),
        max_leaves=20,
    )
)
def test_json_is_read_as_itself(value: object) -> None:
    # JSON is YAML, but for escaped surrogate pairs; \u escapes keep characters that no file has out of the text.
    document = read_document(json.dumps({"value": value}))
    assert document.problems == []
    assert document.tree == {"value": value}


def test_lines_are_those_of_the_file() -> None:
    document = read_document("a: 1\n\nb:\n  - x\n  - c: {d: 2}\n\n# end\ne: |\n  text\n  more\nf: 3\n")
    assert document.tree == {"a": 1, "b": ["x", {"c": {"d": 2}}], "e": "text\nmore\n", "f": 3}
    assert document.lines == {
        ("a",): 1,
        ("b",): 3,
        ("b", 0): 4,
        ("b", 1): 5,
        ("b", 1, "c"): 5,
        ("b", 1, "c", "d"): 5,
        ("e",): 8,
        ("f",): 11,
    }
    assert document.line(("b", 1, "missing", "deeper")) == 5
    assert document.line(("missing",)) is None


def test_quoted_values_stay_text() -> None:
    assert read_document("a: 'true'\nb: \"5\"\nc: !!str 5\n").tree == {"a": "true", "b": "5", "c": "5"}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read_document("1: a\ntrue: b\non: c\n010: d\n").tree == {"1": "a", "true": "b", "on": "c", "010": "d"}


def test_every_duplicate_is_found_and_the_first_stays() -> None:
    document = read_document("a: 1\nb: {c: 1, c: 2}\na: 2\n'a': 3\n")
    assert document.tree == {"a": 1, "b": {"c": 1}}
    assert [(problem.path, problem.line, problem.hint) for problem in document.problems] == [
        ("b.c", 2, "first on line 2; keep one of them"),
        ("a", 3, "first on line 1; keep one of them"),
        ("a", 4, "first on line 1; keep one of them"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "detail", "hint"),
    [
        ("a: b: c\n", 1, "mapping values", "into quotes"),
        ("a:\n\tb: 1\n", 2, "cannot start any token", "indent with spaces"),
        ("a: [1, 2\nb: 3\n", 2, "did not find expected ',' or ']'", "began on line 1"),
        ("a: 'x\nb: 2\n", 3, "unexpected end of stream", "began on line 1"),
        ("a: *nope\n", 1, "undefined alias", ""),
        ("a: 1\n---\nb: 2\n", 2, "another document", "one configuration"),
        ("a: 1\nb: x\0y\n", 2, "(U+0000)", "is it the right file?"),
        ("a: 1\nb: \ufeff1\n", 2, "(U+FEFF)", "is it the right file?"),
        ("a: 1\nb: \ud8001\n", 2, "(U+D800)", "is it the right file?"),
        ("a: 1\n- b\n", 2, "not YAML", ""),
        ("[" * 2000, 1, "nesting", ""),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "!!python/object/apply:os.system", "remove the tag"),
        ("a: !local {b: c}\n", 1, "!local", "remove the tag"),
        ("a: !!binary aGk=\n", 1, "!!binary", "remove the tag"),
        ("? [a]\n: b\n", 1, "a key that is no text", "before a colon"),
        ("a: {'': b}\n", 1, "a key that is no text", "before a colon"),
        ("a: {<<: 5}\n", 1, "<< wants another section", "<<: *name"),
        ("a: {<<: [{b: 1}, 5]}\n", 1, "<< wants another section", "<<: *name"),
        ("a: &x {b: *x}\n", 1, "an alias that contains itself", "remove the alias"),
        ("a: &x {<<: *x}\n", 1, "an alias that contains itself", "remove the alias"),
    ],
)
def test_faults_of_yaml_have_a_line_and_a_way_out(text: str, line: int, detail: str, hint: str) -> None:
    [problem] = read_document(text).problems
    assert problem.reason is Reason.CONFIG_SYNTAX
    assert problem.line == line
    assert detail in problem.detail
    assert hint in problem.hint


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "5\n"])
def test_a_file_without_settings_is_told(text: str) -> None:
    [problem] = read_document(text).problems
    assert problem.reason is Reason.CONFIG_WRONG_TYPE
    assert problem.hint == "begin with network: NAME"


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "~\n"])
def test_an_empty_file_is_an_empty_tree(text: str) -> None:
    document = read_document(text)
    assert (document.tree, document.problems) == ({}, [])


def test_aliases_give_equal_values_of_their_own() -> None:
    document = read_document("a: &x {b: [1]}\nc: *x\n")
    assert document.tree["a"] == document.tree["c"] == {"b": [1]}
    assert document.tree["a"] is not document.tree["c"]
    assert document.lines[("c", "b")] == 1


def test_merged_sections_keep_what_is_their_own() -> None:
    document = read_document(
        "base: &base\n  a: 1\n  b: {c: 2}\nother: &other {a: 5, d: 6}\n"
        "one:\n  <<: *base\n  a: 7\ntwo:\n  a: 8\n  <<: [*base, *other]\n"
    )
    assert document.problems == []
    assert document.tree["one"] == {"a": 7, "b": {"c": 2}}
    assert document.tree["two"] == {"a": 8, "b": {"c": 2}, "d": 6}
    assert document.lines[("one", "a")] == 7
    assert document.lines[("one", "b")] == 3
    assert document.lines[("two", "d")] == 4
    assert document.lines[("two", "b", "c")] == 3


def test_a_fault_inside_a_merged_section_is_told_once_per_use() -> None:
    document = read_document("a: &x {b: 1, b: 2}\nc: {<<: *x}\n")
    assert [(problem.path, problem.line) for problem in document.problems] == [("a.b", 1), ("c.b", 1)]


@pytest.mark.parametrize("aliased", ["*{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}, *{0}"])
def test_a_few_lines_cannot_grow_to_gigabytes(aliased: str) -> None:
    lines = ["a: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"k{level}: &l{level} [{aliased.format(f'l{level - 1}')}]" for level in range(1, 30)]
    begun = time.process_time()
    document = read_document("\n".join(lines))
    assert time.process_time() - begun < 20
    assert document.tree == {}
    assert [problem.reason for problem in document.problems] == [Reason.TOO_LARGE]
    assert str(MAX_VALUES) in document.problems[0].detail


def test_merging_counts_too() -> None:
    lines = ["k0: &l0 {a: 1, b: 2}"]
    lines += [f"k{n}: &l{n} {{x{n}: {{<<: *l{n - 1}}}, y{n}: {{<<: *l{n - 1}}}}}" for n in range(1, 25)]
    document = read_document("\n".join(lines))
    assert [problem.reason for problem in document.problems] == [Reason.TOO_LARGE]


def test_depth_is_bounded() -> None:
    document = read_document("a: " + "[" * 50 + "]" * 50)
    assert [problem.reason for problem in document.problems] == [Reason.TOO_LARGE]
    assert "nested deeper" in document.problems[0].detail


def test_size_is_bounded() -> None:
    document = read_document("# " + "x" * MAX_BYTES)
    assert [problem.reason for problem in document.problems] == [Reason.TOO_LARGE]


def test_the_parser_is_the_fast_one() -> None:
    assert yaml.__with_libyaml__


def test_paths_are_written_as_people_do() -> None:
    assert dotted(("a", "b", 1, "c")) == "a.b[1].c"
    assert dotted(()) == ""
