from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from grid.debug import create_app
from tests.debug.fake_view import FakeView


@pytest.fixture
def view() -> FakeView:
    return FakeView()


@pytest_asyncio.fixture
async def client(view: FakeView) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(view))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as made:
        yield made
