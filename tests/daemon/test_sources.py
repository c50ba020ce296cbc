import pytest

from grid.daemon import sources
from grid.daemon.observe import Source
from grid.model import Reason, ScrapeError
from grid.signals.epp import EppScraper
from grid.signals.prometheus import PrometheusScraper
from tests.daemon.parts import CONFIG, config

PROMETHEUS = CONFIG.replace(
    "source: {epp: http://127.0.0.1:1/b}",
    "source: {prometheus: http://127.0.0.1:1, match: {cluster: west}, pool: p}, readiness: {probe: http://127.0.0.1:1/h}",
)


async def made(text: str) -> dict[str, Source]:
    return await sources.make(sources.declared(config(text)))


async def close(found: dict[str, Source]) -> None:
    for one in found.values():
        await one.aclose()
        await one.aclose()


async def test_each_kind_of_source_is_made() -> None:
    found = await made(PROMETHEUS)
    east, west = found["east-llama"], found["west-llama"]
    assert isinstance(east.scraper, EppScraper)
    assert east.probe is None
    assert (east.interval, east.timeout) == (2.0, 1.0)
    assert isinstance(west.scraper, PrometheusScraper)
    assert west.probe is not None
    await close(found)


async def test_tls_without_files_of_its_own_shares_one_context() -> None:
    found = await made(PROMETHEUS.replace("http:", "https:"))
    await close(found)


async def test_a_source_that_cannot_be_made_fails_every_scrape_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def picky(name: str, *more: object, **named: object) -> object:
        if name == "east-llama":
            raise ScrapeError("no such material", reason=Reason.TLS_MATERIAL)
        return EppScraper(name, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("grid.daemon.sources.EppScraper", picky)
    found = await made(CONFIG)
    with pytest.raises(ScrapeError) as caught:
        await found["east-llama"].scraper.scrape()
    assert caught.value.reason is Reason.TLS_MATERIAL
    assert isinstance(found["west-llama"].scraper, EppScraper)
    await close(found)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("max_running: 8", "max_running: 9"), True),
        (("http://127.0.0.1:1/a}", "http://127.0.0.1:1/a, token_file: /t}"), True),
        (("scrape_interval: 2s", "scrape_interval: 3s"), True),
        (("http://127.0.0.1:1/a}", "http://127.0.0.1:1/other}"), False),
        (("http://127.0.0.1:1/a}", "http://127.0.0.1:1/a, pool: p}"), False),
        (("epp: http://127.0.0.1:1/a", "prometheus: http://127.0.0.1:1"), False),
    ],
)
def test_when_old_samples_still_count(change: tuple[str, str], same: bool) -> None:
    old = sources.declared(config(CONFIG))["east-llama"]
    new = sources.declared(config(CONFIG.replace(*change)))["east-llama"]
    assert new.observes_as(old) is same


def test_only_what_is_read_differently_is_made_anew() -> None:
    old = sources.declared(config(CONFIG))
    assert sources.declared(config(CONFIG.replace("max_running: 8", "max_running: 9"))) == old
    assert sources.declared(config(CONFIG.replace("scrape_timeout: 1s", "scrape_timeout: 2s"))) != old
