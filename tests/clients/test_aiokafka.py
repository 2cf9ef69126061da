"""The calls of a typical aiokafka programme."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def test_what_an_async_producer_sends_an_async_group_consumer_reads(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type="gzip")
    await producer.start()
    try:
        for i in range(20):
            await producer.send_and_wait(topic, str(i).encode(), key=b"k")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        got = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(20)]
        await consumer.commit()
    finally:
        await consumer.stop()
    assert got == [str(i).encode() for i in range(20)]
