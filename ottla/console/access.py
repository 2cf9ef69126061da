"""The console's clients of the cluster: one for panels, one for the sampler, and a further one for each scan and each change.

Brokers answer the requests of a connection in order. A scan that waits for records must not hold the panels, therefore it has
connections of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType

from ottla.client.cluster import ClusterClient
from ottla.client.connection import open_cluster
from ottla.client.failures import Failure
from ottla.console.options import ConsoleOptions

CLIENT_ID = "ottla-console"
#: If a broker does not answer a panel's request within this time, the request is repeated after the others.
PANEL_TIMEOUT_MS = 4_000
#: Scans and changes wait longer: a scan may read many records before the first match, and a controller may be elected
#: meanwhile.
WORK_TIMEOUT_MS = 20_000
SCANS_MAX = 8


class Busy(Failure):
    """The largest number of scans is running already."""


class ConsoleAccess:
    """The clients by their use. Enter this context in the event loop that serves the pages."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._stack = AsyncExitStack()
        self._scans = 0
        self.panels: ClusterClient
        self.sampler: ClusterClient

    async def __aenter__(self) -> ConsoleAccess:
        try:
            self.panels = await self._stack.enter_async_context(self._open(PANEL_TIMEOUT_MS))
            self.sampler = await self._stack.enter_async_context(self._open(PANEL_TIMEOUT_MS))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def scan(self) -> AsyncIterator[ClusterClient]:
        """Yield a separate client for one reader of records.

        Raises:
            Busy: SCANS_MAX readers are at work.
        """
        if self._scans >= SCANS_MAX:
            raise Busy(f"{SCANS_MAX} scans are running", "stop one of them, or wait until it has ended")
        self._scans += 1
        try:
            async with self._open(WORK_TIMEOUT_MS) as cluster:
                yield cluster
        finally:
            self._scans -= 1

    @asynccontextmanager
    async def change(self) -> AsyncIterator[ClusterClient]:
        """Yield a client for one change. It ends when its time limit is over.

        Raises:
            Failure: the time limit is over.
        """
        async with self._open(WORK_TIMEOUT_MS) as cluster:
            try:
                async with asyncio.timeout(WORK_TIMEOUT_MS / 1000):
                    yield cluster
            except TimeoutError:
                cause = f"gave up after {WORK_TIMEOUT_MS // 1000} s while {cluster.doing}"
                raise Failure(cause, "look again whether it has happened nevertheless") from None

    @property
    def scans(self) -> int:
        """Return how many scans are running."""
        return self._scans

    def _open(self, timeout_ms: int) -> AbstractAsyncContextManager[ClusterClient]:
        options = self._options
        return open_cluster(
            options.bootstrap, options.properties, options.config, timeout_ms, limited=False, client_id=CLIENT_ID
        )
