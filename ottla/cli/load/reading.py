"""The half of the load generator that reads, with any kind of consumer.

It imports no producer, so that tools that only read start faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from ottla.cli.load.measured import Seen, Taken, size_of
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumed
from ottla.protocol.records.record import Record


async def consume(
    cluster: ClusterClient,
    source: AsyncIterator[Sequence[Record]],
    seen: Seen,
    *,
    wanted: Callable[[], bool] = lambda: True,
    silent_s: float | None = None,
) -> bool:
    """Read while records are `wanted`, until the source ends.

    The time of each chunk is that since the chunk before; a chunk may be empty.

    Returns: False if nothing has come for `silent_s`.
    """
    clock, number = cluster.world.clock, 0
    before_ns = newest_ns = clock.mono_ns()
    while wanted():
        left_s = None if silent_s is None else silent_s - (clock.mono_ns() - newest_ns) / 1e9
        try:
            records = await asyncio.wait_for(anext(source), left_s)
        except StopAsyncIteration:
            break
        except TimeoutError:
            if left_s is None:
                raise
            return False
        now_ns = clock.mono_ns()
        seen(Taken(number, len(records), sum(map(size_of, records)), (now_ns - before_ns) / 1e6, now_ns))
        number, before_ns = number + len(records), now_ns
        newest_ns = now_ns if records else newest_ns
    return True


async def records_of(consumed: AsyncIterator[Consumed]) -> AsyncIterator[Sequence[Record]]:
    async for row in consumed:
        yield row.records
