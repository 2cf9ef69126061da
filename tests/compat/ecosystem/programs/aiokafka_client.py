"""aiokafka: a producer, a group that goes on where it stopped, a transaction, and the admin client."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from checks import BOOTSTRAP, RUN, check, equal, run

TOPIC, GROUP = f"aiokafka-{RUN}", f"aiokafka-{RUN}"


async def read(count: int, **settings: object) -> list[bytes]:
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", **settings)
    await consumer.start()
    try:
        values: list[bytes] = []
        while len(values) < count:
            values.append((await asyncio.wait_for(anext(consumer), 30)).value)
        if settings.get("group_id"):
            await consumer.commit()
        return values
    finally:
        await consumer.stop()


async def main() -> None:
    with check("create a topic"):
        admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        equal(TOPIC in await admin.list_topics(), True)
        await admin.close()
    with check("an idempotent producer"):
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True) as producer:
            for number in range(10):
                await producer.send_and_wait(TOPIC, b"%d" % number, headers=[("h", b"1")])
    with check("a group reads and commits"):
        equal(
            await read(5, group_id=GROUP, max_poll_records=5, enable_auto_commit=False), [b"%d" % n for n in range(5)]
        )
    with check("the group goes on where it stopped"):
        equal((await read(5, group_id=GROUP))[0], b"5")
    with check("a transaction, and one that is aborted"):
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"txn-{RUN}") as producer:
            async with producer.transaction():
                await producer.send(TOPIC, b"committed")
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"aborted")
            await producer.abort_transaction()
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as plain:
            await plain.send_and_wait(TOPIC, b"after")
        values = await read(12, isolation_level="read_committed")
        equal(values[10:], [b"committed", b"after"])


run(lambda: asyncio.run(main()))
