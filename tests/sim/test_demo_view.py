import io

from rich.console import Console

from grid.sim.demo_view import GatewayCell, Scene, SiteRow, line, live, summary_tables

SCENE = Scene(
    elapsed=12.4,
    duration=40.0,
    phase="killed",
    sentence="all engines of east die",
    rows=(
        SiteRow("east", "v0.10", 0, 3.0, None, None, "fresh", "none", "not_ready", {"edge-east": GatewayCell()}),
        SiteRow(
            "west", "v0.9", 2, 14.0, 16.0, 0.875, "stale", "existing_only", "stale", {"edge-east": GatewayCell(1, 1.0)}
        ),
    ),
    gateways={"edge-east": "v7 8f3a21"},
    events=tuple(f"event {number}" for number in range(20)),
)


def shown(part: object) -> str:
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(part)
    return console.export_text()


def test_the_screen_shows_every_site_and_the_newest_events() -> None:
    text = shown(live(SCENE))
    rows = {row.split()[0]: row.split() for row in text.splitlines() if row.strip()}
    east, west = rows["east"], rows["west"]
    assert east == ["east", "v0.10", "0", "3", "-", "-", "none", "0%"]
    assert west == ["west", "v0.9", "2", "14", "16", "0.88", "existing_only", "stale", "100%", "g1"]
    assert "killed: all engines of east die" in text
    assert "12 of 40 s" in text
    assert "edge-east v7 8f3a21" in text
    assert "event 19" in text
    assert "event 11" not in text


def test_a_line_says_the_same_for_a_pipe() -> None:
    assert line(SCENE) == (" 12.4s killed    east 3/- none  west 14/16 existing_only | edge-east -> west 100%")


def test_the_summary_shows_how_traffic_moved() -> None:
    gateway = {
        "version": 7, "revision": "a" * 64, "requests": 900, "retried": 4, "rescued": 2, "shed": 0, "errors": 0,
        "slowest_s": 1.25, "shares": {},
    }  # fmt: skip
    summary = {
        "published": 12, "revisions": 5, "scrapes": 99, "requests": 900, "errors": 0, "sites": ["east", "west"],
        "gateways": {"edge-east": gateway},
        "phases": {"before": {"edge-east": {"east": 1.0}}, "killed": {"edge-east": {"east": 0.01, "west": 0.99}}},
    }  # fmt: skip
    text = "\n".join(shown(part) for part in summary_tables(summary))
    assert "aaaaaaaaaaaa " in text
    rows = [row.split() for row in text.splitlines()]
    assert ["before", "edge-east", "100%", "0%"] in rows
    assert ["killed", "edge-east", "1%", "99%"] in rows
    assert "12 documents published (5 different ones) from 99 scrapes; 900 requests, 0 of them failed." in text
