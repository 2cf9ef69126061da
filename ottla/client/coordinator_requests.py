"""Requests to the coordinator of a group, wherever it is: they are repeated until it answers, or until time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.client.cluster import ATTEMPT_MS_MAX, RETRY_BACKOFF_MS, ClusterClient, NoConnection
from ottla.client.errors import code_of
from ottla.protocol.errors import ErrorCode


async def ask_coordinator(
    cluster: ClusterClient, group: str, request: object, timeout_ms: int, patience_ms: int | None = None
) -> tuple[Any, int]:
    """Return the response of the group's coordinator, and its error code, which is none that passes. Times as in `until_answered`."""

    async def ask() -> tuple[Any, int]:
        node = await cluster.coordinator(group)
        response = await cluster.request(request, node, timeout_ms=timeout_ms)
        return response, response.error_code

    return await until_answered(cluster, ask, timeout_ms, patience_ms)


async def ask_about_group(
    cluster: ClusterClient,
    group: str,
    request: object,
    doing: str,
    entry: Callable[[Any], Any] = lambda response: response,
    *,
    version: int | None = None,
) -> Any:
    """Return the group's entry in the response of its coordinator, with its error code, unless that is one that passes by itself.

    A coordinator that has moved is looked for, and one that still loads its log is waited for, until the command's time is up.
    """

    async def ask() -> tuple[Any, int]:
        node = await cluster.coordinator(group)
        cluster.doing = doing
        found = entry(await cluster.request(request, node, version=version))
        return found, found.error_code

    found, _ = await cluster.retry(ask)
    return found


def first_group(response: Any) -> Any:
    """Return the entry of a response about one group."""
    return response.groups[0]


async def until_answered(
    cluster: ClusterClient,
    ask: Callable[[], Awaitable[tuple[Any, int]]],
    timeout_ms: int = ATTEMPT_MS_MAX,
    patience_ms: int | None = None,
) -> tuple[Any, int]:
    """Repeat `ask` for `patience_ms`, or the time limit of the command, besides the answer's own time `timeout_ms`."""
    limit_ms = cluster.timeout_ms if patience_ms is None else patience_ms
    async with asyncio.timeout((limit_ms + timeout_ms) / 1000):
        while True:
            try:
                response, code = await ask()
            except NoConnection:
                code = ErrorCode.NETWORK_EXCEPTION
            if not code_of(code).retriable:
                return response, code
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
