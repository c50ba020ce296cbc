"""Pictures: what is reduced to plain data, and that what is drawn says it."""

import random
import re
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import pytest

from grid.sim.virtual import plots
from grid.sim.virtual.pictures import POINTS, SHORTEST, Oscillation, Picture, Shares, Waits, longer, steady, summed


@pytest.fixture
def pictures() -> dict[str, Picture]:
    rng = random.Random(3)
    arrivals = tuple((rng.randrange(90, 110), rng.randrange(40, 60)) for _ in range(30))
    return {
        "shares": Shares("Who got what", ("near", "far"), arrivals, steady((128, 64)), events=((10.0, "loss of far"),)),
        "waits": Waits(
            "How long it took", {"random": longer([rng.expovariate(2.0) for _ in range(500)]), "perfect": ()}
        ),
        "swings": Oscillation("How it swings", {"random": (1.5, 1.2, 1.4), "grid": (1.0, 1.1, 1.0)}, 10.0),
    }


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def strokes(path: Path, colour: str) -> list[str]:
    """What is drawn in this colour, legend included."""
    drawn = path.read_text(encoding="utf-8")
    return re.findall(rf'<path d="([^"]*)"[^>]*stroke: {colour}', drawn)


def dashes(path: Path) -> int:
    """Dashed grey lines, legend included."""
    return len(re.findall(r"stroke-dasharray: 3.7,1.6[^>]*stroke: #8a8a8a", path.read_text(encoding="utf-8")))


def test_shares_of_windows_leave_out_silence_and_what_is_cut() -> None:
    picture = Shares("x", ("a", "b"), ((3, 1), (1, 3), (0, 0), (0, 0), (0, 4), (0, 0), (9, 9)), ((0.0, (0.5, 0.5)),), 2)
    assert picture.lines() == [([1.0, 5.0], [0.5, 0.0]), ([1.0, 5.0], [0.5, 1.0])]


def test_the_complementary_distribution_is_that_of_the_waits() -> None:
    rng = random.Random(5)
    waits = [0.0] * 400 + [rng.expovariate(4.0) for _ in range(600)]
    line = longer(waits)
    assert len(line) == POINTS
    assert line[0][0] == SHORTEST
    for wait, part in line[:-1]:
        assert part == sum(one > wait for one in waits) / 1000
    assert line[-1] == (float(f"{max(waits):.4g}"), 1 / 1000)
    assert all(one[0] < other[0] and one[1] >= other[1] for one, other in pairwise(line))


def test_runs_are_added_up_second_by_second() -> None:
    assert summed([[(1, 2), (3, 4), (9, 9)], [(10, 20), (30, 40)]]) == ((11, 22), (33, 44))
    assert summed([]) == ()


@pytest.mark.parametrize("waits", [[], [0.0, 0.0], [SHORTEST / 2]])
def test_who_does_not_wait_has_no_line(waits: list[float]) -> None:
    assert longer(waits) == ()


def test_equal_waits_are_a_cliff() -> None:
    line = longer([2.0] * 10)
    assert line[-1] == (2.0, 0.1)
    assert {part for _, part in line[:-1]} == {1.0}


def test_the_same_data_draws_the_same_bytes_whatever_is_set_up_for_others(
    tmp_path: Path, pictures: dict[str, Picture]
) -> None:
    once = [path.read_bytes() for path in plots.save(tmp_path / "a" / "deep", pictures)]
    with mpl.rc_context({"font.size": 30.0, "lines.linewidth": 9.0, "svg.fonttype": "path"}):
        again = [path.read_bytes() for path in plots.save(tmp_path / "b", pictures)]
    assert once == again
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["shares.svg", "swings.svg", "waits.svg"]
    assert not re.search(rb"<dc:date>|Matplotlib v|[ \t]\n", b"".join(once))


def test_every_axis_has_its_name_and_unit_and_every_line_its_own(tmp_path: Path, pictures: dict[str, Picture]) -> None:
    shares, waits, swings = plots.save(tmp_path, pictures)
    assert {
        "Who got what", "near", "far", "fair share", "loss of far", "virtual time (s)", "share of the requests",
    } <= set(texts(shares))  # fmt: skip
    assert {
        "How long it took", "random", "perfect (nobody waits)", "wait in a site's queue (s)",
        "fraction of requests above it",
    } <= set(texts(waits))  # fmt: skip
    assert {
        "How it swings", "random", "grid", "fair share", "virtual time (s)", "busiest site / its fair share",
        "(windows of 10 s)",
    } <= set(texts(swings))  # fmt: skip


def test_one_line_for_each_and_dashes_where_it_would_be_fair(tmp_path: Path, pictures: dict[str, Picture]) -> None:
    shares, waits, swings = plots.save(tmp_path, pictures)
    for colour in plots.COLOURS[:2]:
        line, _in_legend = strokes(shares, colour)
        assert line.count("L") == 29
    assert dashes(shares) == 3, "two and a legend"
    assert strokes(waits, plots.COLOURS[0])[0].count("L") == POINTS - 1
    assert [strokes(swings, colour)[0].count("L") for colour in plots.COLOURS[:2]] == [2, 2]


def test_fair_shares_may_change_and_equal_ones_are_drawn_once(tmp_path: Path) -> None:
    fair = ((0.0, (0.25, 0.25, 0.5)), (4.0, (0.5, 0.5, 0.0)))
    picture = Shares("A site is lost", ("a", "b", "c"), ((1, 1, 2),) * 4 + ((2, 2, 0),) * 4, fair)
    (path,) = plots.save(tmp_path, {"loss": picture})
    assert dashes(path) == 5, "0.25 and 0.5, then 0 and 0.5, and the legend"
    assert texts(path).count("fair share") == 1


def test_pictures_of_nothing_are_drawn(tmp_path: Path) -> None:
    empty: dict[str, Picture] = {
        "shares": Shares("Nothing came", ("a",), (), steady((1,))),
        "waits": Waits("Nobody waited", {"grid": ()}),
        "swings": Oscillation("Nothing to see", {"grid": ()}, 10.0),
    }
    shares, waits, swings = plots.save(tmp_path, empty)
    assert "Nothing came" in texts(shares)
    assert "grid (nobody waits)" in texts(waits)
    assert "Nothing to see" in texts(swings)
