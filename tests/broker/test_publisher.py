"""New metadata takes effect on a real broker, on a simulated disk: the number of partitions in one slice, and what clients see
between two slices.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.broker_node import BrokerNode
from ottla.broker.replication.replicas import CHANGE_UNITS, CREATE_UNITS, LOOK_UNITS, Replicas
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import UNITS_A_TURN
from ottla.protocol.errors import KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.work import Work
from ottla.storage.directories.logs import Logs
from tests.sim.cluster import SimCluster
from tests.sim.loop import run

TOPIC_ID = b"t" * 16
MANY = 2 * UNITS_A_TURN // CHANGE_UNITS + 5


class Made:
    """Counts the calls of the methods that take time, in each slice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts = {"created": 0, "assigned": 0, "removed": 0}
        for owner, name, what in (
            (Logs, "create", "created"),
            (Replicas, "_assign", "assigned"),
            (Replicas, "_remove", "removed"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name), what))

    def _counted(self, method: Callable[..., object], what: str) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            self.counts[what] += 1
            return method(*args, **kwargs)

        return counted

    def slices(self, work: Work[None], what: str) -> list[int]:
        """Return the count of each slice of the work, and last the count after the last yield."""
        found, before = [], self.counts[what]
        for _ in work:
            found.append(self.counts[what] - before)
            before = self.counts[what]
        return [*found, self.counts[what] - before]


def on_a_broker(story: Callable[[BrokerNode], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimCluster(random.Random(1), {1: "broker,controller"}, {})
        cluster.start()
        assert await cluster.all_serve(10)
        server = cluster.nodes[0].server
        assert server is not None and server.broker is not None
        await story(server.broker)

    run(main())


def update(broker: BrokerNode, *records: object) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(broker.metadata.image)
    delta.replay_all(records)
    return delta, delta.apply(broker.metadata.image.offset, broker.metadata.image.epoch)


def topic(partitions: int, replicas: list[int], topic_id: bytes = TOPIC_ID) -> list[object]:
    return [
        TopicRecord(name=f"of {replicas}", topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=each,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            )
            for each in range(partitions)
        ),
    ]


def leads(broker: BrokerNode, index: int) -> bool:
    try:
        return broker.replicas.lookup("", TOPIC_ID, index).is_leader
    except KafkaError as error:
        assert error.code.name == "NOT_LEADER_OR_FOLLOWER"
        return False


def test_logs_are_made_for_a_bounded_number_of_partitions_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition creates files. One that has not had its turn is not led here yet, and a client retries."""

    async def story(broker: BrokerNode) -> None:
        made = Made(monkeypatch)
        work = broker.publisher.on_metadata_update(*update(broker, *topic(30, [1])))
        next(work)
        assert leads(broker, 0) and not leads(broker, 29)
        assert made.counts["created"] <= UNITS_A_TURN // CREATE_UNITS
        assert max(made.slices(work, "created")) <= UNITS_A_TURN // CREATE_UNITS
        assert leads(broker, 29)

    on_a_broker(story)


def test_partitions_change_their_roles_and_go_a_bounded_number_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: BrokerNode) -> None:
        for _ in broker.publisher.on_metadata_update(*update(broker, *topic(MANY, [1, 2]))):
            pass
        made = Made(monkeypatch)
        moved = [PartitionChangeRecord(partition_id=each, topic_id=TOPIC_ID, leader=2) for each in range(MANY)]
        slices = made.slices(broker.publisher.on_metadata_update(*update(broker, *moved)), "assigned")
        assert max(slices) <= UNITS_A_TURN // CHANGE_UNITS and sum(slices) == MANY and not made.counts["created"]
        gone = update(broker, RemoveTopicRecord(topic_id=TOPIC_ID))
        slices = made.slices(broker.publisher.on_metadata_update(*gone), "removed")
        assert max(slices) <= UNITS_A_TURN // CHANGE_UNITS and sum(slices) == MANY

    on_a_broker(story)


def test_what_is_on_other_brokers_takes_its_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of other brokers are compared in several turns, too: 200,000 comparisons take 50 ms."""

    async def story(broker: BrokerNode) -> None:
        count = 2 * UNITS_A_TURN // LOOK_UNITS + 1
        work = broker.publisher.on_metadata_update(*update(broker, *topic(count, [7, 8])))
        assert sum(1 for _ in work) >= 2
        assert not broker.replicas.by_id.get(TOPIC_ID)

    on_a_broker(story)


def test_a_node_that_stops_while_metadata_takes_effect_leads_nothing_more_and_keeps_its_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(broker: BrokerNode) -> None:
        work = broker.publisher.on_metadata_update(*update(broker, *topic(30, [1])))
        next(work)
        logs = len(broker.logs.open)
        broker.replicas.resign_all()
        for _ in work:
            pass
        broker.replicas.set_aside_strays()
        assert len(broker.logs.open) == logs
        assert not any(partition.is_leader for partition in broker.replicas)

    on_a_broker(story)


def test_a_node_that_was_replaced_before_it_got_any_metadata_sets_no_log_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node has no image to compare its logs with: all of them would be strays."""

    async def story(broker: BrokerNode) -> None:
        for _ in broker.publisher.on_metadata_update(*update(broker, *topic(3, [1]))):
            pass
        logs = len(broker.logs.open)
        broker.replicas.image = MetadataImage()
        broker.replicas.resign_all()
        broker.replicas.set_aside_strays()
        assert len(broker.logs.open) == logs >= 3

    on_a_broker(story)
