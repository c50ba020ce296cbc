import asyncio

import pytest

from grid.daemon.events import KEPT_CYCLES, KEPT_EVENTS, MAX_FEEDS, QUEUE, EventLog, Feed
from grid.debug import Event, EventFeed
from grid.model import DaemonError, Reason

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def take(feed: Feed, number: int) -> list[Event | None]:
    taken: list[Event | None] = []
    async for event in feed:
        taken.append(event)
        if len(taken) == number:
            break
    return taken


async def test_history_is_bounded_and_ids_rise() -> None:
    log = EventLog(wall=lambda: 5.0)
    for number in range(KEPT_EVENTS + 10):
        log.add("drain", f"{number}")
    kept = log.history()
    assert len(kept) == KEPT_EVENTS
    assert kept[-1].id - kept[0].id == KEPT_EVENTS - 1
    assert kept[-1].at == 5.0


async def test_cycles_that_changed_nothing_push_no_event_out() -> None:
    log = EventLog()
    log.add("leader", "leads")
    for _ in range(KEPT_EVENTS + KEPT_CYCLES):
        log.add_cycle("nothing changed", {}, changed=False)
    log.add_cycle("published", {"published": ["edge"]}, changed=True)
    assert [event.sentence for event in log.history()] == ["leads", "published"]
    assert len(log.cycles()) == KEPT_CYCLES
    assert log.cycles()[-1].sentence == "published"


async def test_a_feed_gives_what_happens() -> None:
    log = EventLog()
    log.add("x", "before")
    feed = log.feed(None)
    log.add("x", "first")
    log.add("x", "second")
    assert [event.sentence for event in await take(feed, 2) if event] == ["first", "second"]


async def test_a_feed_goes_on_after_an_id() -> None:
    log = EventLog()
    events = [log.add("x", str(number)) for number in range(5)]
    feed = log.feed(events[2].id)
    assert [event.sentence for event in await take(feed, 2) if event] == ["3", "4"]


async def test_a_slow_reader_loses_the_oldest_and_is_told() -> None:
    log = EventLog()
    slow, quick = log.feed(None), log.feed(None)
    for number in range(QUEUE + 7):
        log.add("x", str(number))
        if number < QUEUE:
            assert await take(quick, 1)
    assert slow.take_lost() == 7
    assert slow.take_lost() == 0
    first = (await take(slow, 1))[0]
    assert first is not None
    assert first.sentence == "7"
    assert quick.take_lost() == 0


async def test_a_quiet_time_is_told() -> None:
    feed = EventLog().feed(None)
    assert await take(feed, 2) == [None, None]
    assert asyncio.get_running_loop().time() == pytest.approx(30, abs=0.01)


async def test_the_end_lets_readers_have_what_waits() -> None:
    log = EventLog()
    feed = log.feed(None)
    log.add("x", "last words")
    log.close()
    log.close()
    assert [event.sentence async for event in feed if event] == ["last words", "the daemon stops"]
    assert [event.kind for event in log.history()] == ["x", "stopping"]
    # Whoever comes in these last moments hears of it too, once.
    assert [event.kind async for event in log.feed(None) if event] == ["stopping"]
    assert [event.kind async for event in log.feed(0) if event] == ["x", "stopping"]


async def test_the_number_of_readers_is_bounded() -> None:
    log = EventLog()
    feeds: list[EventFeed] = [log.feed(None) for _ in range(MAX_FEEDS)]
    with pytest.raises(DaemonError) as caught:
        log.feed(None)
    assert caught.value.reason is Reason.TOO_MANY_LISTENERS
    assert caught.value.status == 503
    feeds[0].close()
    log.feed(None)
