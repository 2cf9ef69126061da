"""The key set of an identity provider: from a file or a URL, kept for `sasl.oauthbearer.jwks.endpoint.refresh.ms`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ottla.server.clock import pause
from ottla.server.sasl.signed_tokens import Keys, read_keys
from ottla.server.sasl.web import fetch, without_secrets

if TYPE_CHECKING:
    from ottla.server.world import World

log = logging.getLogger(__name__)

#: A token with an unknown key id causes an early refresh. This interval limits how often clients can cause one.
EARLY_REFRESH_INTERVAL_MS = 10_000


class KeySet:
    """The keys that validations use at present. A task of the node fetches them."""

    def __init__(self, world: World, url: str, refresh_ms: int, retry_ms: int, retry_ms_max: int) -> None:
        self._world = world
        self._url = url
        self._shown_url = without_secrets(url)
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_ms_max = retry_ms_max
        self._fetched_ms = -EARLY_REFRESH_INTERVAL_MS
        self._early = asyncio.Event()
        self.keys: Keys = {}
        world.spawn(self._run(), f"keys of {self._shown_url}")

    def missing(self) -> None:
        """Request an early refresh, because a token names an unknown key."""
        if self._world.clock.mono_ms() - self._fetched_ms >= EARLY_REFRESH_INTERVAL_MS:
            self._early.set()

    async def _run(self) -> None:
        retry_ms = self._retry_ms
        while True:
            self._early.clear()
            self._fetched_ms = self._world.clock.mono_ms()
            try:
                self.keys = read_keys(await self._read())
            except (OSError, ValueError) as error:
                log.error("Keys of %s could not be fetched, those that are known stay: %s", self._shown_url, error)
                await pause(self._world.clock, retry_ms)
                retry_ms = min(2 * retry_ms, self._retry_ms_max)
                continue
            log.info("%d keys fetched of %s", len(self.keys), self._shown_url)
            retry_ms = self._retry_ms
            await self._wait()

    async def _wait(self) -> None:
        """Wait until the keys are due for a refresh, or a key is missing."""
        timer = self._world.clock.call_later(self._refresh_ms, self._early.set)
        try:
            await self._early.wait()
        finally:
            timer.cancel()

    async def _read(self) -> bytes:
        parts = urlsplit(self._url)
        if parts.scheme != "file":
            return await self._world.workers.run(fetch, self._url)
        data = self._world.files.read(url2pathname(parts.path))
        if data is None:
            raise ValueError("there is no such file")
        return data
