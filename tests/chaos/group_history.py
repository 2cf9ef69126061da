"""Consumers of a group while brokers die, and their judge.

Within one assignment nothing is skipped and nothing comes twice (invariant 45); an assignment begins where the group has
committed, or later, never before a commit that was acknowledged (39, 40); every record that was acknowledged to a producer is
seen (46).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from tests.chaos.history import PARTITIONS, TOPIC, UNKNOWN_OFFSET, Load, Place, Record, decode

GROUP = "readers"
SEEN_SECONDS_MAX = 60
BATCH = 500
#: The settings of the two protocols of groups. With the newer one (KIP-848) the broker has the session's length.
CLASSIC: Mapping[str, Any] = {"session.timeout.ms": 10_000}
CONSUMER: Mapping[str, Any] = {"group.protocol": "consumer"}


class Group:
    """The offsets that the members of a group have committed and seen together."""

    def __init__(
        self,
        bootstrap: str,
        members: int,
        topic: str = TOPIC,
        *,
        name: str = GROUP,
        settings: Mapping[str, Any] = CLASSIC,
    ) -> None:
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.seen: dict[Place, Record] = {}
        self.delivered = 0
        self.assignments = 0
        self.problems: list[str] = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self._members = [_Member(self, number, bootstrap, topic, name, settings) for number in range(members)]

    def stop(self, loads: list[Load]) -> None:
        """Stop once all acknowledged records have been seen, or after a while."""
        # Acknowledgements without an offset (`history.Place`) come before others of their partition.
        wanted = {place for load in loads for place in load.acknowledged.values() if place.offset != UNKNOWN_OFFSET}
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while not wanted <= self.seen.keys() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.stopping.set()
        for member in self._members:
            member.thread.join()
        if missing := {record for load in loads for record in load.acknowledged} - set(self.seen.values()):
            self.problems.append(f"the group has not seen {len(missing)} acknowledged records, like {min(missing)}")
        for load in loads:
            for record, place in load.acknowledged.items():
                if self.seen.get(place, record) != record:
                    self.problems.append(f"{place} was {record} for its producer, {self.seen[place]} for the group")


class _Member:
    """A consumer in a thread."""

    def __init__(
        self, group: Group, number: int, bootstrap: str, topic: str, name: str, settings: Mapping[str, Any]
    ) -> None:
        from confluent_kafka import Consumer

        self._group = group
        self._number = number
        self._expected: dict[int, int] = {}  # partition -> the next offset; -1 until the first record
        self._floor: dict[int, int] = {}  # partition -> the committed offset at its assignment
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "client.id": f"member-{number}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        with self._group.lock:
            self._group.assignments += 1
            for each in partitions:
                self._expected[each.partition] = -1
                self._floor[each.partition] = self._group.committed[each.partition]

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._commit()
        for each in partitions:
            self._expected.pop(each.partition, None)

    def _run(self) -> None:
        while not self._group.stopping.is_set():
            messages = [each for each in self._consumer.consume(BATCH, 0.1) if each.error() is None]
            for message in messages:
                self._see(message)
            if messages:
                self._commit()
        self._consumer.close()

    def _see(self, message: Any) -> None:
        group, partition, offset = self._group, message.partition(), message.offset()
        record = decode(message.value())
        with group.lock:
            group.delivered += 1
            expected = self._expected.get(partition)
            if expected is None:
                group.problems.append(f"member {self._number} got {partition}@{offset} without owning the partition")
            elif expected >= 0 and offset != expected:
                group.problems.append(f"member {self._number} got {partition}@{offset} instead of @{expected}")
            elif expected < 0 and offset < self._floor[partition]:
                group.problems.append(f"{partition} was assigned at {offset}, committed was {self._floor[partition]}")
            self._expected[partition] = offset + 1
            before = group.seen.setdefault(Place(partition, offset), record)
            if before != record:
                group.problems.append(f"{partition}@{offset} was {before}, then {record}")

    def _commit(self) -> None:
        """Commit offsets. Acknowledged ones are kept as the floor; a rejected or doubtful commit promises nothing."""
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(TOPIC, index, after) for index, after in self._expected.items() if after >= 0]
        if not offsets:
            return
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return
        with self._group.lock:
            for each in answers or ():
                if each.error is None:
                    self._group.committed[each.partition] = max(self._group.committed[each.partition], each.offset)
