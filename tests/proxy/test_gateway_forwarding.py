"""Requests there and answers back."""

import asyncio
from typing import Any

import pytest

from tests.proxy.rig import Provider, Seen, answer, rig


async def test_a_request_goes_to_a_provider_and_the_answer_comes_back() -> None:
    async with rig("east") as made:
        status, headers, body = await made.ask({"messages": []}, headers={"x-mine": "1"})
        assert (status, body) == (200, b'{"from":"east"}')
        assert headers["x-grid-site"] == "east"
        assert headers["x-grid-backend"] == "east-llama"
        assert len(headers["x-grid-revision"]) == 64
        assert made.in_flight == 0
