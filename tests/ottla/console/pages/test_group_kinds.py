"""Consumer, share and streams groups with one member each: what the list and the page of a group show about them."""

from __future__ import annotations

import asyncio
import itertools

from confluent_kafka import Consumer, Producer

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.broker.conftest import eventually as until
from tests.broker.groups.share.wire_member import WireMember
from tests.broker.groups.streams.topologies import stateless
from tests.broker.wire import Wire
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, eventually


def wire_to(cli: Cli) -> Wire:
    host, _, port = cli.bootstrap.split(",")[0].rpartition(":")
    return Wire(int(port), host)


def joined_consumer(cli: Cli, name: str) -> Consumer:
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": f"{name}.consumer", **settings})
    consumer.subscribe([name])
    record = consumer.consume(1, 30)[0]
    consumer.commit(message=record, asynchronous=False)
    return consumer


def join_share(wire: Wire, name: str) -> None:
    member = WireMember(wire, f"{name}.share", "AAAAAAAAAAAAAAAAAAAAAA")
    until(lambda: member.joins(name), "the share member to join")
    until(lambda: member.has([0]), "the share member's partition")


def join_streams(wire: Wire, name: str) -> None:
    group, fields = f"{name}.streams", {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": "p"}
    wire.request(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    join = StreamsGroupHeartbeatRequest(group, "m", 0, rebalance_timeout_ms=60_000, topology=stateless(name), **fields)
    until(lambda: not wire.request(join, 0).error_code, "the streams member to join")


async def test_consumer_share_and_streams_groups_are_listed_and_show_their_members(
    open_console: Open, cli: Cli
) -> None:
    name = cli.topic()
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    for number in range(5):
        producer.produce(name, str(number))
    await asyncio.to_thread(producer.flush)
    consumer = await asyncio.to_thread(joined_consumer, cli, name)
    with wire_to(cli) as wire:
        for join in (join_share, join_streams):
            await asyncio.to_thread(join, wire, name)
        client = await open_console()
        listed = (await client.get("/groups", params={"q": name})).text
        for kind, has in itertools.product(("consumer", "share", "streams"), ("<td>{}</td>", "id=" + name + ".{}")):
            assert has.format(kind) in listed, listed
        page = await eventually(client, f"/group?id={name}.consumer", f"{name}-0")
        assert "rdkafka" in page and '<td class="num warn">4</td>' in page
        page = await eventually(client, f"/group?id={name}.share", f"{name}-0")
        page = page.partition('id="live"')[2]
        assert "Begins at" in page and "AAAAAAAA" in page and ">-1<" not in page and "note error" not in page
        page = await eventually(client, f"/group?id={name}.streams", '<td class="mono muted">m</td>')
        assert "Tasks" in page and "note error" not in page.partition('id="live"')[2]
    await asyncio.to_thread(consumer.close)
