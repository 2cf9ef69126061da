"""FastStream on aiokafka: a subscriber that publishes a result for each message."""

import asyncio

from checks import BOOTSTRAP, RUN, check, equal, run
from faststream.kafka import KafkaBroker

SOURCE, TARGET = f"faststream-in-{RUN}", f"faststream-out-{RUN}"
broker = KafkaBroker(BOOTSTRAP)
received: list[int] = []
done = asyncio.Event()


@broker.subscriber(SOURCE, group_id=f"faststream-{RUN}", auto_offset_reset="earliest")
@broker.publisher(TARGET)
async def double(number: int) -> int:
    return number * 2


@broker.subscriber(TARGET, auto_offset_reset="earliest")
async def collect(number: int) -> None:
    received.append(number)
    if len(received) == 100:
        done.set()


async def main() -> None:
    with check("messages through a subscriber and a publisher: 100"):
        async with broker:
            await broker.start()
            for number in range(100):
                await broker.publish(number, SOURCE)
            await asyncio.wait_for(done.wait(), 60)
        equal(sorted(received), [number * 2 for number in range(100)])


run(lambda: asyncio.run(main()))
