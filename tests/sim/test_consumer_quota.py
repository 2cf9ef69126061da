"""Twenty consumers of one quota at a real broker in virtual time: together they get what it allows, however they wait."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryDataRequest, OpData
from ottla.protocol.messages.fetch import FetchPartition, FetchTopic
from ottla.server.network.client import Channel
from tests.broker.records import batch
from tests.sim.loop import run
from tests.sim.test_fetch_regressions import BY_NAME, TOPIC, OneNode, fetch

CONSUMERS, SECONDS = 20, 20
BYTES_PER_SECOND = 2_000_000
RECORD = bytes(10_000)
#: Consumers and quota are on a client id; `OneNode.channel` gives its clients this one.
CLIENT_ID = "asks"


async def set_quota(channel: Channel) -> None:
    entity = [EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
    operation = OpData(key="consumer_byte_rate", value=float(BYTES_PER_SECOND), remove=False)
    answer = await channel.request(AlterClientQuotasRequest([EntryDataRequest(entity, [operation])]))
    assert not answer.entries[0].error_code


@pytest.mark.parametrize(("at_the_end", "min_bytes", "late_ms"), [(False, 1, 400), (True, 1, 400), (True, 200_000, 0)])
def test_twenty_consumers_get_their_quota_behind_and_at_the_end_of_the_log(
    at_the_end: bool, min_bytes: int, late_ms: int
) -> None:
    """At the end they wait in the purgatory, up to half a second; each one asks up to `late_ms` after it might."""
    rng, got = random.Random(late_ms), 0

    async def consume(channel: Channel, end_s: float) -> None:
        nonlocal got
        loop, offset = asyncio.get_running_loop(), 0
        while loop.time() < end_s:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = fetch(min_bytes=min_bytes, max_wait_ms=500, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
            answer = await channel.request(request, version=BY_NAME)
            for topic in answer.responses:
                size = len(topic.partitions[0].records or b"")
                got += size if loop.time() < end_s else 0
                offset += size // len(batch([RECORD])) if at_the_end else 0
            await asyncio.sleep(rng.uniform(0, late_ms) / 1_000)

    async def main() -> None:
        one = OneNode()
        await one.begin()

        def append() -> None:
            one.partition.append(batch([RECORD]), 1, one.node.host.clock.wall_ms())

        async def produce(end_s: float) -> None:
            while asyncio.get_running_loop().time() < end_s:
                await asyncio.sleep(0.02)
                one.in_its_turn(append, append)  # a million bytes a second for each of them

        await set_quota(one.channel())
        one.in_its_turn(*[append] * 110)
        await asyncio.sleep(1)
        end_s = asyncio.get_running_loop().time() + SECONDS
        consumers = [consume(one.channel(), end_s) for _ in range(CONSUMERS)]
        await asyncio.gather(*consumers, *([produce(end_s)] if at_the_end else []))

    run(main())
    assert 0.98 <= got / SECONDS / BYTES_PER_SECOND <= 1.1, got / SECONDS / BYTES_PER_SECOND
