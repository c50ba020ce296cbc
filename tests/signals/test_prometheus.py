"""The signals of an EPP by way of a real Prometheus that scrapes its page."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from grid.model import Reason, ScrapeError
from grid.signals.prometheus import PrometheusScraper, PrometheusTarget
from grid.signals.scan import read_page
from grid.signals.scrape import Scrape
from grid.signals.store import SampleStore
from tests.bus.waiting import eventually
from tests.support.http_server import Answer, Request, serve
from tests.support.prometheus_server import Pages, ask, prometheus
from tests.support.until import PATIENCE, until

pytestmark = pytest.mark.real_server

REAL_PAGES = (
    "main-fc.busy.txt",
    "main-fc.zero-ready-frozen.txt",
    "v0.10-fc.full.txt",
    "v0.10-fc.idle.txt",
    "v0.10-fc.no-endpoints.txt",
    "v0.10-fc.one-of-three-dead.txt",
    "v0.10-traffic.queueing.txt",
    "v0.9.busy.txt",
    "v0.9.never-ready.txt",
    "v0.9.zero-ready-frozen.txt",
)

AWKWARD = 'we"st\\ \n{é}'


def page(pool: str, *, ready: int = 2, queue: float = 1.5, running: float = 3.0) -> bytes:
    return (
        f'llm_d_epp_ready_endpoints{{name="{pool}"}} {ready}\n'
        f'llm_d_epp_average_queue_size{{name="{pool}"}} {queue}\n'
        f'llm_d_epp_average_running_requests{{name="{pool}"}} {running}\n'
        f'llm_d_epp_average_kv_cache_utilization{{name="{pool}"}} 0.25\n'
        f'llm_d_epp_per_endpoint_queue_size{{model_server_endpoint="e0",name="{pool}"}} 1\n'
        f'llm_d_epp_per_endpoint_queue_size{{model_server_endpoint="e1",name="{pool}"}} 2\n'
        'llm_d_epp_request_running{fairness_id="a",model_name="m",priority="0",target_model_name="m"} 5\n'
        'llm_d_epp_request_running{fairness_id="b",model_name="m",priority="0",target_model_name="m"} 2\n'
        f'llm_d_epp_flow_control_queue_size{{fairness_id="a",inference_pool="{pool}",priority="0"}} 4\n'
        f'llm_d_epp_flow_control_queue_size{{fairness_id="b",inference_pool="{pool}",priority="-1"}} 3\n'
        f'llm_d_epp_flow_control_pool_saturation{{inference_pool="{pool}"}} 0.5\n'
        'llm_d_epp_flow_control_stale_endpoints{detector="utilization-detector"} 0\n'
        "process_start_time_seconds 1.7e+09\n"
    ).encode()


@dataclass
class Site:
    """One Prometheus, the pages it scrapes, and how to ask it."""

    address: str
    pages: Pages

    async def scraper(self, match: Mapping[str, str], pool: str | None = None, **more: Any) -> PrometheusScraper:
        target = PrometheusTarget(f"http://{self.address}", match, pool, **more)
        return PrometheusScraper("west", target, timeout=30.0)

    async def scrape(self, match: Mapping[str, str], pool: str | None = None) -> Scrape:
        scraper = await self.scraper(match, pool)
        try:
            return await scraper.scrape()
        finally:
            await scraper.aclose()

    async def settled(self, path: str, content: bytes | None) -> None:
        """Put ``content`` at ``path`` and wait until it has been scraped, or its absence noticed."""
        marker, number = f'grid_test_marker{{path="{path}"}}', float(time.monotonic_ns())
        if content is None:
            del self.pages.pages[path]
            await until(lambda: _value(self.address, marker) is None)
        else:
            self.pages.pages[path] = content + f"{marker} {number}\n".encode()
            await until(lambda: _value(self.address, marker) == number)


def _value(address: str, query: str) -> float | None:
    found = ask(address, query)
    return float(found[0]["value"][1]) if found else None


def target(path: str, pages: Pages, cluster: str, **labels: str) -> dict[str, object]:
    return {"targets": [pages.address], "labels": {"__metrics_path__": path, "cluster": cluster, **labels}}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages = Pages()
    quick = [
        *(target(f"/{name}", pages, name) for name in REAL_PAGES),
        target("/one", pages, "one"),
        target("/gone", pages, "gone"),
        target("/twin-a", pages, "twins", instance="a"),
        target("/twin-b", pages, "twins", instance="b"),
        target("/pool-a", pages, "pools", instance="a"),
        target("/pool-b", pages, "pools", instance="b"),
        target("/renamed", pages, "renamed", name="x", stage="prod", model_name="y", inference_pool="z"),
        target("/awkward", pages, AWKWARD),
    ]
    slow = [target("/slow", pages, "slow")]
    configs = [
        {"job_name": "epp", "static_configs": quick},
        {"job_name": "slow", "static_configs": slow, "scrape_interval": "2s", "scrape_timeout": "1s"},
    ]
    with prometheus(configs) as address:
        yield Site(address, pages)
    pages.close()


def reason(error: pytest.ExceptionInfo[ScrapeError]) -> Reason:
    return error.value.reason


@pytest.mark.parametrize("name", REAL_PAGES)
async def test_a_real_page_reads_the_same_as_directly(site: Site, shared_fixtures: Path, name: str) -> None:
    content = (shared_fixtures / "epp" / name).read_bytes()
    direct = read_page(content)
    await site.settled(f"/{name}", content)
    scrape = await site.scrape({"cluster": name})
    assert scrape.reading == direct.reading
    assert {problem.code for problem in scrape.problems} == {problem.code for problem in direct.problems}
    assert scrape.page_bytes > 0
    assert 0 < scrape.cost_s < 30


async def test_sums_and_counts(site: Site) -> None:
    await site.settled("/one", page("llama"))
    reading = (await site.scrape({"cluster": "one"}, "llama")).reading
    assert (reading.in_flight, reading.flow_control_queue, reading.pool_saturation) == (7, 7, 0.5)
    assert (reading.ready, reading.ready_endpoints, reading.ready_live) == (2, 2, 2)
    assert (reading.average_queue_size, reading.average_running_requests, reading.kv_cache_utilization) == (
        1.5,
        3,
        0.25,
    )
    assert (reading.started_at, reading.pool, reading.dialect) == (1.7e9, "llama", "llm_d_epp")


async def test_the_age_is_that_of_the_sample(site: Site) -> None:
    """Prometheus scrapes this page every 2 s; what it says is as old as its last scrape, not as our question."""
    await site.settled("/slow", page("llama"))
    scraper = await site.scraper({"cluster": "slow"})
    seen: set[float] = set()
    ages = []
    for _ in range(12):
        before = site.pages.served_at["/slow"]
        now = time.monotonic()
        scrape = await scraper.scrape()
        if site.pages.served_at["/slow"] != before:
            continue  # Prometheus scraped in between: which of the two answered is open
        assert scrape.sampled_at is not None
        assert scrape.received_at == pytest.approx(before, abs=1.0)
        ages.append(now - scrape.received_at)
        seen.add(scrape.sampled_at)
        await asyncio.sleep(0.25)
    await scraper.aclose()
    assert max(ages) > 1.0
    assert 1 <= len(seen) <= 4
    assert len(ages) > 3


async def test_the_interval_of_the_server_is_learned(site: Site) -> None:
    await site.settled("/slow", page("llama"))
    scraper = await site.scraper({"cluster": "slow"})
    store = SampleStore(["west"])
    sequences: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while len(set(sequences)) < 3 and time.monotonic() < deadline:
        scrape = await scraper.scrape()
        sample = store.apply("west", scrape, interval=0.5)
        assert sample is not None
        sequences.append(sample.sequence)
        await asyncio.sleep(0.2)
    await scraper.aclose()
    assert scrape.observed_every == pytest.approx(2.0, abs=0.3)
    assert store.snapshot().samples["west"].interval == scrape.observed_every
    # One observation read ten times counts once.
    assert sequences == sorted(sequences)
    assert len(sequences) > 2 * len(set(sequences))


async def test_a_vanished_page_is_no_old_page(site: Site) -> None:
    """The staleness marker of a failed scrape takes all series away at once, five minutes before they would lapse."""
    await site.settled("/gone", page("llama"))
    assert (await site.scrape({"cluster": "gone"})).reading.ready == 2
    await site.settled("/gone", None)
    with pytest.raises(ScrapeError) as error:
        await site.scrape({"cluster": "gone"})
    assert reason(error) is Reason.PROMETHEUS_EMPTY
    assert '{cluster="gone"}' in error.value.message
    await site.settled("/gone", page("llama", ready=1))
    assert (await site.scrape({"cluster": "gone"})).reading.ready_endpoints == 1


async def test_series_that_leave_the_page_leave_the_reading(site: Site) -> None:
    await site.settled("/gone", page("llama"))
    kept = b"".join(line for line in page("llama").splitlines(keepends=True) if b"kv_cache" not in line)
    await site.settled("/gone", kept)
    reading = (await site.scrape({"cluster": "gone"})).reading
    assert (reading.kv_cache_utilization, reading.average_queue_size) == (None, 1.5)
    running_only = b"".join(line for line in kept.splitlines(keepends=True) if b"request_running" in line)
    await site.settled("/gone", running_only)
    with pytest.raises(ScrapeError) as error:
        await site.scrape({"cluster": "gone"})
    assert reason(error) is Reason.METRIC_MISSING


async def test_a_match_that_fits_nothing(site: Site) -> None:
    with pytest.raises(ScrapeError) as error:
        await site.scrape({"cluster": "nowhere", "job": "epp"})
    assert reason(error) is Reason.PROMETHEUS_EMPTY
    assert '{cluster="nowhere",job="epp"}' in error.value.message


async def test_two_targets_are_refused_until_match_narrows(site: Site) -> None:
    await site.settled("/twin-a", page("llama", queue=1))
    await site.settled("/twin-b", page("llama", queue=9))
    for pool in (None, "llama"):
        with pytest.raises(ScrapeError) as error:
            await site.scrape({"cluster": "twins"}, pool)
        assert reason(error) is Reason.PROMETHEUS_SEVERAL
        assert 'instance="a"' in error.value.message
        assert 'instance="b"' in error.value.message
        assert "cluster=" in error.value.message
    for instance, queue in (("a", 1), ("b", 9)):
        reading = (await site.scrape({"cluster": "twins", "instance": instance}, "llama")).reading
        assert (reading.average_queue_size, reading.in_flight) == (queue, 7)


async def test_the_pool_tells_targets_apart(site: Site) -> None:
    await site.settled("/pool-a", page("small", queue=1))
    await site.settled("/pool-b", page("large", queue=9).replace(b'"a",model_name="m"', b'"a",model_name="other"'))
    for pool, queue in (("small", 1), ("large", 9)):
        reading = (await site.scrape({"cluster": "pools"}, pool)).reading
        assert (reading.pool, reading.average_queue_size, reading.in_flight, reading.flow_control_queue) == (
            pool, queue, 7, 7,
        )  # fmt: skip
    with pytest.raises(ScrapeError) as error:
        await site.scrape({"cluster": "pools"})
    assert reason(error) is Reason.PROMETHEUS_SEVERAL
    with pytest.raises(ScrapeError) as error:
        await site.scrape({"cluster": "pools"}, "huge")
    assert reason(error) is Reason.POOL_MISSING
    assert '"large", "small"' in error.value.message


async def test_labels_of_the_target_that_hide_those_of_the_page(site: Site) -> None:
    """Where both have a label of one name, Prometheus renames the page's."""
    await site.settled("/renamed", page("llama"))
    direct = read_page(page("llama")).reading
    assert (await site.scrape({"cluster": "renamed"}, "llama")).reading == direct
    assert (await site.scrape({"cluster": "renamed", "name": "x"})).reading == direct


async def test_label_values_are_quoted(site: Site) -> None:
    await site.settled("/awkward", page("llama"))
    assert (await site.scrape({"cluster": AWKWARD})).reading.pool == "llama"
    with pytest.raises(ScrapeError) as error:
        await site.scrape({"cluster": 'x"} or llm_d_epp_ready_endpoints{cluster=~".+'})
    assert reason(error) is Reason.PROMETHEUS_EMPTY


async def test_values_that_are_none(site: Site) -> None:
    broken = page("llama").replace(b'_running_requests{name="llama"} 3.0', b'_running_requests{name="llama"} NaN')
    broken = broken.replace(b'fairness_id="b",model_name="m",priority="0",target_model_name="m"} 2', b"} +Inf")
    await site.settled("/one", broken)
    scrape = await site.scrape({"cluster": "one"})
    assert (scrape.reading.average_running_requests, scrape.reading.in_flight) == (None, None)
    assert Reason.BAD_VALUE in {problem.code for problem in scrape.problems}


@pytest.fixture
async def guarded(site: Site) -> AsyncIterator[Callable[[str], str]]:
    """The same Prometheus behind a proxy that wants a bearer token; yields how to set the one it wants."""
    wanted = "first"

    async def forward(request: Request) -> Answer:
        given = request.headers.get("authorization")
        if given is None:
            return Answer(401, b"Unauthorized")
        if given != f"Bearer {wanted}":
            return Answer(403, b"Forbidden")
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://{site.address}{request.target}")
        return Answer(answer.status_code, answer.content, {"content-type": "application/json"})

    def want(token: str) -> str:
        nonlocal wanted
        wanted = token
        return origin

    async with serve(forward) as origin:
        yield want


async def test_a_token_is_read_again_each_time(site: Site, guarded: Callable[[str], str], tmp_path: Path) -> None:
    await site.settled("/one", page("llama"))
    file = tmp_path / "token"
    file.write_text("first\n")
    match = {"cluster": "one"}
    scraper = PrometheusScraper("west", PrometheusTarget(guarded("first"), match, token_file=file), timeout=30)
    assert (await scraper.scrape()).reading.ready == 2
    guarded("second")
    with pytest.raises(ScrapeError) as error:
        await scraper.scrape()
    assert reason(error) is Reason.CREDENTIAL_DENIED
    file.write_text("second\n")
    assert (await scraper.scrape()).reading.ready == 2
    await scraper.aclose()
    bare = PrometheusScraper("west", PrometheusTarget(guarded("second"), match), timeout=30)
    with pytest.raises(ScrapeError) as error:
        await bare.scrape()
    assert reason(error) is Reason.CREDENTIAL_MISSING
    await bare.aclose()


async def test_tls_with_client_certificates(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    for authority, name in ((ours, "ours"), (theirs, "theirs")):
        authority.cert_pem.write_to_path(tmp_path / f"{name}.ca")
        issued = authority.issue_cert("127.0.0.1", "client@example.org")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.crt")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    web_config = {
        "tls_server_config": {
            "cert_file": str(tmp_path / "ours.crt"),
            "key_file": str(tmp_path / "ours.key"),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(tmp_path / "ours.ca"),
        }
    }
    (tmp_path / "broken.crt").write_text("no certificate")

    async def outcome(url: str, ca: str, certificate: str | None, key: str | None = None) -> Reason:
        files = PrometheusTarget(
            url,
            ca_file=tmp_path / ca,
            cert_file=tmp_path / certificate if certificate else None,
            key_file=tmp_path / key if key else None,
        )
        scraper = PrometheusScraper("west", files, timeout=30)
        with pytest.raises(ScrapeError) as error:
            await scraper.scrape()
        await scraper.aclose()
        return reason(error)

    with prometheus(web_config=web_config) as address:
        url = f"https://{address}"

        async def let_in() -> bool:  # it is empty, and says so once it is ready, which is later than that it listens
            found = await outcome(url, "ours.ca", "ours.crt", "ours.key")
            assert found in {Reason.PROMETHEUS_EMPTY, Reason.PROMETHEUS_ERROR}
            return found is Reason.PROMETHEUS_EMPTY

        await eventually(let_in)
        assert await outcome(url, "theirs.ca", "ours.crt", "ours.key") is Reason.TLS_FAILED
        assert await outcome(url, "ours.ca", None) is Reason.TLS_CLIENT_REFUSED
        assert await outcome(url, "ours.ca", "theirs.crt", "theirs.key") is Reason.TLS_CLIENT_REFUSED
        assert await outcome(url, "nowhere.ca", "ours.crt", "ours.key") is Reason.TLS_MATERIAL
        assert await outcome(url, "broken.crt", "ours.crt", "ours.key") is Reason.TLS_MATERIAL
        assert await outcome(url, "ours.ca", "ours.crt", "theirs.key") is Reason.TLS_MATERIAL
        assert await outcome(url, "ours.ca", "nowhere.crt", "ours.key") is Reason.TLS_MATERIAL
