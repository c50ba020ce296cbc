import pytest

from grid.bus.faults import RefusedError
from grid.daemon.link import QUIET, RECENT, Link
from grid.model import BusError, LeaseError, Reason


def away(reason: Reason = Reason.BUS_UNREACHABLE) -> BusError:
    return BusError("no", reason=reason)


def fail(link: Link, error: BusError) -> None:
    with pytest.raises(type(error)), link.watch():
        raise error


def _refusal(link: Link) -> RefusedError | None:
    return link.refusal


def test_it_is_not_up_before_it_has_answered() -> None:
    link = Link(lambda _: None)
    assert not link.up
    with link.watch():
        pass
    assert link.up


def test_changes_are_told_once() -> None:
    told: list[Reason | None] = []
    link = Link(lambda fault: told.append(None if fault is None else fault.reason))
    with link.watch():
        pass
    with link.watch():
        pass
    fail(link, away())
    fail(link, away())
    assert not link.up
    fail(link, away(Reason.BUS_TIMEOUT))
    with link.watch():
        pass
    assert told == [None, Reason.BUS_UNREACHABLE, Reason.BUS_TIMEOUT, None]


def test_a_refusal_by_the_server_is_an_answer_and_what_we_know_ourselves_is_none() -> None:
    link = Link(lambda _: None)
    fail(link, away())
    fail(link, LeaseError("our time is over", reason=Reason.LEASE_LOST))
    assert link.fault is not None
    fail(link, LeaseError("another leads", reason=Reason.STALE_EPOCH))
    assert link.fault is None


def test_other_errors_say_nothing_about_the_bus() -> None:
    link = Link(lambda _: None)
    with pytest.raises(ValueError, match="bug"), link.watch():
        raise ValueError("bug")
    assert not link.up
    assert link.fault is None


def test_a_refused_command_is_an_answer_and_news_once_in_a_while() -> None:
    now = [100.0]
    changes: list[BusError | None] = []
    heard: list[tuple[str, bool]] = []
    link = Link(changes.append, lambda error, news: heard.append((error.message, news)), lambda: now[0])
    full, typed = (RefusedError(text, reason=Reason.BUS_REFUSED) for text in ("out of memory", "wrong type"))
    fail(link, full)
    assert link.up
    assert _refusal(link) is full
    assert changes == [None], "it answers"
    fail(link, full)
    fail(link, typed)
    assert heard == [("out of memory", True), ("out of memory", False), ("wrong type", True)]
    with link.watch():
        pass
    assert changes == [None], "and it was never away"
    now[0] += RECENT
    assert _refusal(link) is None
    now[0] += QUIET
    fail(link, full)
    assert heard[-1] == ("out of memory", True)


def test_however_many_refusals_there_are_few_are_remembered() -> None:
    heard: list[bool] = []
    link = Link(lambda _: None, lambda _, news: heard.append(news), lambda: 0.0)
    for number in range(200):
        fail(link, RefusedError(str(number), reason=Reason.BUS_REFUSED))
    assert all(heard)
    assert len(link._told._said) <= 64
