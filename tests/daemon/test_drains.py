import pytest
from hypothesis import given
from hypothesis import strategies as st

from grid.daemon.drains import Ends
from grid.model import Drain

# Whole seconds: what is left is counted from clocks of doubles, in which the smallest differences vanish.
ends = st.none() | st.integers(min_value=0, max_value=1000).map(float)


def drain(until: float | None, reason: str = "", created: float = 0.0) -> Drain:
    return Drain("east", "east", reason, created, until)


def merged(held: Drain | None, asked: Drain, now: float) -> tuple[Drain, bool]:
    return Ends(wall=lambda: now).merged(held, asked)


def test_a_longer_drain_extends() -> None:
    held, moved = merged(drain(10, "first", 1), drain(60, "second", 5), now=5)
    assert moved
    assert (held.until, held.reason, held.created) == (60, "second", 1)


def test_a_shorter_drain_does_not_shorten() -> None:
    first = drain(60, "first")
    assert merged(first, drain(10, "second"), now=5) == (first, False)


def test_no_end_is_the_latest_end() -> None:
    forever = drain(None)
    assert merged(forever, drain(1e9), now=5) == (forever, False)
    held, moved = merged(drain(1e9, "why"), drain(None), now=5)
    assert moved
    assert (held.until, held.reason) == (None, "why")


def test_one_that_is_over_counts_as_none() -> None:
    asked = drain(20, created=15)
    assert merged(drain(10), asked, now=15) == (asked, True)
    assert merged(None, asked, now=15) == (asked, True)


@given(st.lists(ends, min_size=1, max_size=8))
def test_in_whatever_order_they_come_the_latest_end_holds(asked: list[float | None]) -> None:
    held = None
    for until in asked:
        held, _ = merged(held, drain(until), now=-1)
    assert held is not None
    assert held.until == (None if None in asked else max(until for until in asked if until is not None))


def test_those_in_force_and_those_over() -> None:
    drains = [Drain("a", "a", until=10), Drain("b", "b", until=20), Drain("c", "c")]
    assert set(Ends(wall=lambda: 10).in_force(drains)) == {"b", "c"}


class Clocks:
    """A monotonic clock and a wall clock that may be set."""

    def __init__(self) -> None:
        self.now, self.offset = 5000.0, 1_000_000.0
        self.ends = Ends(lambda: self.now, lambda: self.now + self.offset)

    def drained(self, seconds: float, name: str = "east") -> Drain:
        return Drain(name, name, until=self.now + self.offset + seconds)


@pytest.mark.parametrize("step", [-86_400.0, -30.0, 30.0, 86_400.0])
def test_a_step_of_the_wall_clock_moves_no_end_that_was_seen(step: float) -> None:
    clocks = Clocks()
    drain = clocks.drained(60)
    assert clocks.ends.left(drain) == 60
    clocks.offset += step
    clocks.now += 59
    assert clocks.ends.in_force([drain]) == {"east": drain}
    assert clocks.ends.shown(drain).until == pytest.approx(clocks.now + clocks.offset + 1)
    clocks.now += 1
    assert clocks.ends.in_force([drain]) == {}
    clocks.ends.keep([drain])
    assert clocks.ends.in_force([drain]) == {}, "it does not come back while it lies on the bus"


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_the_later_end_holds_across_a_step(step: float) -> None:
    clocks = Clocks()
    held = clocks.drained(600)
    assert clocks.ends.left(held) == 600
    clocks.offset += step
    assert clocks.ends.merged(held, clocks.drained(60)) == (held, False)
    longer, moved = clocks.ends.merged(held, clocks.drained(900))
    assert moved
    assert clocks.ends.left(longer) == 900


def test_what_lies_nowhere_is_forgotten() -> None:
    clocks = Clocks()
    drain = clocks.drained(60)
    clocks.ends.left(drain)
    clocks.ends.keep([])
    clocks.offset += 30
    assert clocks.ends.left(drain) == 30, "as of a process that sees it for the first time"


def test_an_end_is_shown_as_it_was_set_while_nobody_sets_the_clock() -> None:
    clocks = Clocks()
    drain = clocks.drained(60)
    clocks.now += 30
    assert clocks.ends.shown(drain) is drain
    assert clocks.ends.shown(Drain("west", "west")).until is None
