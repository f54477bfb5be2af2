"""The operator's start."""

from __future__ import annotations

import asyncio

import pytest
from unit.controller.fakes import FakeClient

from vlm_operator.controller.app import App, Options
from vlm_operator.controller.services import WatchFailed


def test_without_the_crd_it_says_what_is_missing_instead_of_waiting_for_ever():
    client = FakeClient()
    client.missing = {"VLMService"}

    async def start() -> None:
        await App(Options(runtime_image="x"))._watch(client)  # type: ignore[arg-type]

    with pytest.raises(WatchFailed, match=r"install the CRD vlmservices\.vlmserve\.dev"):
        asyncio.run(start())
