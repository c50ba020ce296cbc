import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from grid.sim.exposition import escape, family, histogram, number, page


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (181, "181"),
        (340330, "340330"),
        (1048576, "1.048576e+06"),
        (9_954_112.0, "9.954112e+06"),
        (1.0e6, "1e+06"),
        (6.333333333333333, "6.333333333333333"),
        (0.0001, "0.0001"),
        (1.8547e-05, "1.8547e-05"),
        (1.8446744073709552e19, "1.8446744073709552e+19"),
        (1795983095.7042112, "1.7959830957042112e+09"),
        (-3.5, "-3.5"),
        (-2.5e7, "-2.5e+07"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_look_as_in_go(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(allow_nan=False))
def test_numbers_read_back_equal(value: float) -> None:
    assert float(number(value)) == value


@given(st.text())
def test_label_values_read_back_equal(text: str) -> None:
    body = page([family("a_total", "counter", "A counter.", [({"who": text, "at": "x"}, 3)])]).decode()
    found = [sample.labels["who"] for metric in text_string_to_metric_families(body) for sample in metric.samples]
    assert found == [text]
    assert escape(text).count("\n") == 0


def test_a_histogram_rises_and_ends_at_its_count() -> None:
    name, body = histogram("d_seconds", "Durations.", ("0.1", "1", "10"), [({"t": "b"}, 9, 9.0), ({"t": "a"}, 0, 0.0)])
    metric = next(iter(text_string_to_metric_families(body)))
    assert (name, metric.type) == ("d_seconds", "histogram")
    buckets = [s for s in metric.samples if s.name == "d_seconds_bucket" and s.labels["t"] == "b"]
    values = [bucket.value for bucket in buckets]
    assert [bucket.labels["le"] for bucket in buckets] == ["0.1", "1", "10", "+Inf"]
    assert values == sorted(values)
    assert values[0] < values[-1] == 9
    assert body.index('t="a"') < body.index('t="b"')


def test_families_are_sorted_and_unlabelled_ones_carry_no_braces() -> None:
    body = page([family("b", "gauge", "B.", [({}, 1)]), family("a", "gauge", "A.", [({"z": "1", "y": "2"}, 2)])])
    assert body == b'# HELP a A.\n# TYPE a gauge\na{y="2",z="1"} 2\n# HELP b B.\n# TYPE b gauge\nb 1\n'
