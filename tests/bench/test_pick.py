import pytest

from grid.sim.bench import pick


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, object]]:
    found = pick.run(sites=(2, 8, 32), batches=8, size=200, litellm=False)
    return {row["case"]: row for row in found}


def test_a_pick_is_held_against_an_empty_call(rows: dict[str, dict[str, object]]) -> None:
    for sites in (2, 8, 32):
        row = rows[f"pick, saturation, {sites} sites"]
        assert (row["peer"], row["better"]) == ("an empty Python call", "less")
        assert row["p50_us"] < row["route_p50_us"] < row["shed_p50_us"]  # type: ignore[operator]
        assert row["ratio"] > 2  # type: ignore[operator]


@pytest.mark.parametrize("what", ["with route()", "everything full", "refused"])
def test_other_ways_to_choose_are_held_against_it_at_the_largest_size(
    what: str, rows: dict[str, dict[str, object]]
) -> None:
    row = rows[f"{what}, 32 sites"]
    assert (row["peer"], row["better"]) == ("an empty Python call", "less")
    assert row["ratio"] > 2  # type: ignore[operator]


@pytest.mark.parametrize("what", ["frame", "document"])
def test_what_is_taken_over_is_held_against_reading_its_bytes(what: str, rows: dict[str, dict[str, object]]) -> None:
    row = rows[f"take over a {what}, 32 sites x 4 models"]
    assert (row["peer"], row["better"]) == ("orjson.loads of its bytes", "less")
    assert row["ratio"] > 1  # type: ignore[operator]


def test_the_number_of_sites_does_not_show_in_a_pick(rows: dict[str, dict[str, object]]) -> None:
    for size in ("sites", "sites x models"):
        # A look at every site would be at 1.
        assert abs(rows[f"growth of a pick with {size}"]["exponent"]) < 0.5  # type: ignore[arg-type]
    for what in ("frame", "document"):
        assert 0.4 < rows[f"growth of taking over a {what} with sites x models"]["exponent"] < 1.4  # type: ignore[operator]
