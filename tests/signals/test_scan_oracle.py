"""The scan held against prometheus_client, which parses every line there is."""

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from grid.signals.dialects import DIALECTS, FLOW_CONTROL_QUEUE, IN_FLIGHT, WANTED, Fold
from grid.signals.exposition import LineReader, label_text, line_pattern, parse_labels, parse_rest
from grid.signals.scan import read_page
from grid.signals.tally import Tally
from tests.signals.test_scan_pages import PAGES

Sample = tuple[str, tuple[tuple[str, str], ...], float | str]


def shown(value: float) -> float | str:
    """NaN equals itself in a comparison of its name."""
    return "NaN" if math.isnan(value) else float(value)


def ours(data: bytes) -> list[Sample]:
    samples = []
    for name, block, text, rest in LineReader(line_pattern(WANTED)).feed(data):
        sample = parse_rest(rest or block + b" " + text)
        assert sample is not None, (name, block, text, rest)
        labels = sorted((label.decode(), label_text(value)) for label, value in parse_labels(sample.block))
        samples.append((name.decode(), tuple(labels), shown(sample.value)))
    return samples


def theirs(data: bytes, *, openmetrics: bool = False) -> list[Sample]:
    families = openmetrics_families if openmetrics else text_string_to_metric_families
    return [
        (sample.name, tuple(sorted(sample.labels.items())), shown(sample.value))
        for metric in families(data.decode())
        for sample in metric.samples
        if sample.name in WANTED
    ]


label_values = st.text(
    st.one_of(st.sampled_from('\\"\n{},=# \t'), st.characters(exclude_categories=["Cs"])), max_size=12
)
label_names = st.sampled_from(
    ["name", "inference_pool", "stage", "detector", "fairness_id", "model_server_endpoint", "a"]
)
blanks = st.sampled_from(["", "", "", " ", "\t", "  "])
values = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False).map(repr),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e5", "-0", "+5", ".5", "5.", "1.79598333811e+09", "1e400"]),
)
stamps = st.one_of(st.just(""), st.integers(0, 2**41).map(lambda number: f" {number}"))
names = st.one_of(
    st.sampled_from(sorted(WANTED)),
    st.sampled_from(sorted(WANTED)).map(lambda name: f"{name}_total"),
    st.sampled_from(sorted(WANTED)).map(lambda name: name[:-1]),
    st.sampled_from(["go_goroutines", "llm_d_epp", "inference_", "a:b", "x_bucket"]),
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(label_names, label_values, max_size=4))
    pairs = [
        f'{draw(blanks)}{name}{draw(blanks)}={draw(blanks)}"{escaped(value)}"{draw(blanks)}'
        for name, value in labels.items()
    ]
    comma = draw(st.sampled_from(["", ","]))
    block = draw(st.sampled_from(["", "{}"]))
    if pairs:
        block = draw(blanks) + "{" + ",".join(pairs) + comma + "}"
    space = draw(st.sampled_from([" ", " ", " ", "  ", "\t"]))
    return draw(names) + block + space + draw(values) + draw(stamps) + draw(st.sampled_from(["", "", " ", "\r"]))


lines = st.one_of(
    sample_lines(),
    st.sampled_from(
        ["", "# HELP go_x text {", "# TYPE go_x gauge", "# a comment", "# HELP llm_d_epp_ready_endpoints x"]
    ),
)
pages = st.lists(lines, max_size=15).map(lambda found: "".join(f"{line}\n" for line in found).encode())


@given(pages)
def test_every_wanted_sample_is_found_with_its_labels_and_value(data: bytes) -> None:
    assert ours(data) == theirs(data)


@given(pages)
def test_samples_are_folded_as_a_naive_reader_would(data: bytes) -> None:
    tally = Tally()
    tally.add(LineReader(line_pattern(WANTED)).feed(data))
    expected: dict[str, dict[tuple[str, ...], dict[tuple[tuple[str, str], ...], float | str]]]
    expected = defaultdict(lambda: defaultdict(dict))
    for name, labels, value in theirs(data):
        key = tuple(dict(labels).get(label, "") for label in WANTED[name].labels)
        expected[name][key].setdefault(labels, value)
    assert {name: {key: group.series for key, group in groups.items()} for name, groups in tally.groups.items()} == {
        name: {key: len(series) for key, series in groups.items()} for name, groups in expected.items()
    }
    for name, groups in expected.items():
        for key, series in groups.items():
            if WANTED[name].fold is not Fold.COUNT:
                assert tally.groups[name][key].value == pytest.approx(
                    naive(WANTED[name].fold, series.values()), abs=1e-3
                )


def naive(fold: Fold, found: object) -> float | None:
    numbers = [number for number in list(found) if isinstance(number, float)]  # type: ignore[call-overload]
    usable = len(numbers) == len(list(found)) and all(map(math.isfinite, numbers))  # type: ignore[call-overload]
    if fold is Fold.SUM:
        return math.fsum(numbers) if usable else None
    first = next(iter(found))  # type: ignore[call-overload]
    return first if isinstance(first, float) and 0 <= first < math.inf else None


@pytest.mark.parametrize("name", [name for name in PAGES if not name.endswith(".gz")])
def test_real_pages_have_equal_samples(shared_fixtures: Path, name: str) -> None:
    data = (shared_fixtures / "epp" / name).read_bytes()
    found = ours(data)
    assert found
    # The library's parser of OpenMetrics refuses that page, for a family that is on it twice; the other reads it.
    assert found == theirs(data)


@pytest.mark.parametrize("name", ["v0.10-traffic.queueing.txt", "main-fc.busy.txt", "v0.9.busy.txt"])
def test_a_real_page_reads_to_what_its_samples_say(shared_fixtures: Path, name: str) -> None:
    data = (shared_fixtures / "epp" / name).read_bytes()
    values: Mapping[str, list[float]] = defaultdict(list)
    for sample, _, value in theirs(data):
        assert isinstance(value, float)
        values[sample].append(value)
    reading = read_page(data).reading
    dialect = DIALECTS[0]
    assert reading.ready_endpoints == values[dialect.ready][0]
    assert reading.average_queue_size == values[dialect.queue][0]
    assert reading.kv_cache_utilization == values[dialect.kv][0]
    assert reading.in_flight == (sum(values[IN_FLIGHT[0]]) if IN_FLIGHT[0] in values else None)
    assert reading.flow_control_queue == (
        sum(values[FLOW_CONTROL_QUEUE[0]]) if FLOW_CONTROL_QUEUE[0] in values else None
    )


def test_an_exemplar_is_not_the_value() -> None:
    text = (
        "# TYPE llm_d_epp_datalayer_poll_errors counter\n"
        'llm_d_epp_datalayer_poll_errors_total{source_type="a b"} 17.0 1520879607.789 # {trace_id="x # {y"} 0.67 1.5\n'
        "# EOF\n"
    )
    assert ours(text.encode()) == theirs(text.encode(), openmetrics=True)
