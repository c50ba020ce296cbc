"""What clients offer or break below the level of requests."""

import pytest

from tests.proxy.raw import line, request
from tests.proxy.rig import rig

OFFERS = [
    b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    b"UPGRADE: h2c\r\nCONNECTION: UPGRADE\r\n",
]


@pytest.mark.parametrize("offer", OFFERS, ids=["h2c", "websocket", "capitals"])
async def test_an_offer_to_upgrade_is_ignored_and_its_body_read(offer: bytes) -> None:
    async with rig("east") as made, line(made.url) as client:
        sent = request(b'{"model":"llama"}').replace(b"host: gateway\r\n", b"host: gateway\r\n" + offer)
        await client.send(sent)
        status, headers, _ = await client.answer()
        assert status == 200
        assert headers["x-grid-site"] == "east"
        seen = made.providers["east"].seen[-1]
        assert seen.body == b'{"model":"llama"}'
        assert not {"upgrade", "keep-alive", "http2-settings"} & {name.lower() for name, _ in seen.headers}


@pytest.mark.parametrize("good", [b"", b'14\r\n{"model":"llama","a":\r\n'], ids=["first", "later"])
async def test_a_chunk_that_is_none_is_told_so(good: bytes) -> None:
    async with rig("east") as made:
        made.providers["east"].read_body = False
        async with line(made.url) as client:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
            await client.send(head + good)
            await client.send(b"ZZ\r\n")
            status, _, said = await client.answer()
            assert (status, said["error"]["code"]) == (400, "bad_request")
