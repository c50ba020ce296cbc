"""Processes that help a bench: what they say is heard, what ends them is told, and none is left behind."""

import os

import pytest

from grid.sim.bench.helpers import Helper, marks, shared_out


def test_one_that_ends_before_it_answers_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with Helper("memory_daemon", part="no such part") as one, pytest.raises(RuntimeError, match="memory_daemon ended"):
        one.hear()
    assert "no such part" in capfd.readouterr().err


def test_one_that_says_nothing_is_not_waited_for_longer_than_wanted() -> None:
    with Helper("cycle_sites", sites=[], profile="v0.10") as one:
        assert one.hear() == {"urls": {}}
        with pytest.raises(RuntimeError, match="cycle_sites said nothing"):
            one.hear(0.05)


def test_an_error_of_the_bench_ends_them() -> None:
    def broken() -> None:
        with Helper("cycle_sites", sites=[], profile="v0.10") as one:
            pids.append(one.pid)
            raise KeyboardInterrupt

    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        broken()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_things_are_shared_out_evenly() -> None:
    assert shared_out("abcdefg", 3) == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
    assert shared_out("ab", 4) == [["a"], ["b"]]


def test_marks() -> None:
    assert marks([3.0]) == (3.0, 3.0)
    assert marks([float(number) for number in range(101)]) == pytest.approx((50.0, 99.0))
