"""Durations, sizes and percentages: exact both ways, and refused with the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.config import (
    format_duration,
    format_percent,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
)
from grid.model import ConfigError, Reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("0s", 0.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        ("1m0.25s", 60.25),
        ("0.1s", 0.1),
        ("1d1h1m1s1ms", 90061.001),
    ],
)
def test_durations_are_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2", "write 2s"),
        ("+2", "write 2s"),
        ("-2s", "such as 500ms"),
        ("", "such as 500ms"),
        ("s", "such as 500ms"),
        ("1 s", "such as 500ms"),
        ("1e3s", "such as 500ms"),
        ("1S", "such as 500ms"),
        ("٣s", "such as 500ms"),
        ("1" * 60 + "s", "such as 500ms"),
        ("30m1h", "largest unit first"),
        ("1s1s", "largest unit first"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(text)
    assert caught.value.reason is Reason.CONFIG_WRONG_TYPE
    assert hint in caught.value.problems[0].hint


@given(st.integers(0, 10**9))
def test_milliseconds_survive_a_round_trip(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(0, 1e9, allow_subnormal=False).filter(lambda seconds: seconds == 0 or seconds > 1e-9))
def test_any_span_survives_a_round_trip(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(
    st.lists(st.sampled_from(["d", "h", "m", "s", "ms"]), min_size=1, unique=True),
    st.lists(st.integers(0, 10_000), min_size=5, max_size=5),
)
def test_written_durations_mean_the_sum_of_their_parts(chosen: list[str], numbers: list[int]) -> None:
    factors = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
    parts = [(number, unit) for unit, number in zip(factors, numbers, strict=True) if unit in chosen]
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert parse_duration(text) == sum(number * factors[unit] for number, unit in parts) / 1000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (2.0, "2s"), (0.5, "500ms"), (5400.0, "1h30m"), (86400.0, "1d"), (1.5, "1.5s"), (60.25, "1m0.25s")],
)
def test_durations_are_shown_as_people_write_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 64 << 20), ("1.5KiB", 1536), ("0B", 0), ("1kB", 1000), ("2 GiB", 2 << 30), ("1TB", 10**12)],
)
def test_sizes_are_read_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("67108864", "write 67108864B"),
        ("64mib", "write 64MiB"),
        ("64Mi", "write 64MiB"),
        ("64KB", "write 64kB"),
        ("64blocks", "units: B, kB"),
        ("-1B", "such as 512KiB"),
        ("MiB", "such as 512KiB"),
        ("0.5B", "a smaller unit"),
    ],
)
def test_what_is_no_size_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_size(text)
    assert hint in caught.value.problems[0].hint


@given(st.integers(0, 1 << 50))
def test_sizes_survive_a_round_trip(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_sizes_are_shown_in_the_largest_unit_that_divides_them() -> None:
    assert [format_size(size) for size in (0, 1, 1024, 1536, 64 << 20, 1 << 40)] == [
        "0B",
        "1B",
        "1KiB",
        "1536B",
        "64MiB",
        "1TiB",
    ]


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("100%", 1.0), ("0.1%", 0.001), ("7 %", 0.07)])
def test_percentages_are_read_as_fractions(text: str, share: float) -> None:
    assert parse_percent(text) == share
    assert format_percent(share) == text.replace(" ", "")


@pytest.mark.parametrize(("text", "hint"), [("5", "write 5%"), ("five%", "such as 5%"), ("-5%", "such as 5%")])
def test_what_is_no_percentage_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_percent(text)
    assert hint in caught.value.problems[0].hint


@given(st.floats(0, 1, allow_subnormal=False).filter(lambda share: share == 0 or share > 1e-12))
def test_percentages_survive_a_round_trip(share: float) -> None:
    assert parse_percent(format_percent(share)) == share
