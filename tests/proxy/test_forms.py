# ruff: noqa: ASYNC240 - what a test looks at lies in small local files
"""What the forms depend on beside the document: the configuration, read again."""

from pathlib import Path

import pytest

from grid.bus import Delivery, Source
from grid.config import parse
from grid.overlay import Scope
from grid.proxy.addresses import Addresses
from grid.proxy.delivery import Held
from grid.proxy.forms import EdsForm, EnvelopeForm
from tests.overlay.build import accepted, document
from tests.proxy.words import config_text, grouped, position, write_config

BUS = "redis://127.0.0.1:1"
EAST: dict[str, str | None] = {"east": "http://127.0.0.1:1001"}
SCOPE = Scope("acme", "edge", "default", "east")


def delivery(*sites: str) -> Delivery:
    made = grouped(*((site, 0, 100) for site in sites))
    return Delivery(accepted(made.body), made.body, position(1), made.revision, Source.READ)


class TestEnvelopeForm:
    def test_only_a_good_document_of_this_gateway_counts(self) -> None:
        made = document()
        body = made.published(7, 3, leader="x", published_at="2026-01-02T00:00:00Z")
        assert EnvelopeForm(SCOPE).read(body) == Held(position(7, 3), made.revision)
        assert EnvelopeForm(SCOPE).read(made.body) == Held(position(0, 0), made.revision)
        assert EnvelopeForm(Scope("acme", "other", "default", "east")).read(body) is None
        assert EnvelopeForm(SCOPE).read(body[:-1]) is None
        assert EnvelopeForm(SCOPE, b"k" * 32).read(body) is None

    async def test_it_depends_on_nothing_else(self) -> None:
        form = EnvelopeForm(SCOPE)
        form.restore(b"")
        made = await form.make(delivery("east"))
        assert made.data == delivery("east").document
        assert await form.refresh() is False


class TestReadingTheConfigurationAgain:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return write_config(tmp_path / "grid.yaml", BUS, EAST)

    @pytest.fixture
    def form(self, path: Path) -> EdsForm:
        return EdsForm(
            parse(config_text(BUS, EAST)), "edge", prefix="grid", source=path, addresses=Addresses(lambda _: [])
        )

    async def test_the_same_changes_nothing(self, form: EdsForm) -> None:
        assert await form.refresh() is False
        assert await form.refresh() is False

    async def test_another_url_of_a_provider(self, form: EdsForm, path: Path) -> None:
        before = (await form.make(delivery("east"))).data
        write_config(path, BUS, {"east": "http://127.0.0.1:2001"})
        assert await form.refresh() is True
        after = (await form.make(delivery("east"))).data
        assert before is not None
        assert after is not None
        assert (b"1001" in before, b"2001" in after, b"1001" in after) == (True, True, False)

    @pytest.mark.parametrize("harm", ["gone", "broken", "other network", "no such gateway"])
    async def test_what_cannot_be_used_leaves_the_old_one(self, form: EdsForm, path: Path, harm: str) -> None:
        await form.refresh()
        before = await form.make(delivery("east"))
        text = config_text(BUS, {"east": "http://127.0.0.1:2001"})
        if harm == "gone":
            path.unlink()
        elif harm == "broken":
            path.write_text(text.replace("sites:", "sights:"))
        elif harm == "other network":
            path.write_text(text.replace("network: acme", "network: other"))
        else:
            path.write_text(text.replace("edge:", "other:"))
        assert await form.refresh() is False
        assert await form.make(delivery("east")) == before

    async def test_it_is_in_a_hurry_while_something_is_missing(self, form: EdsForm) -> None:
        await form.make(delivery("east"))
        settled = form.pause
        await form.make(delivery("east", "west"))
        assert form.pause < settled
