"""Share consumers over Ottla's own wire codec that follow the leaders of a cluster, and a list of all records that were
delivered to them.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.protocol.errors import ErrorCode
from ottla.testing import Cluster
from tests.broker.share.member import ACCEPT, RELEASE, At, Batch, Delivered, ShareMember
from tests.broker.wire import Wire

T = TypeVar("T")
#: partition, offset
Place = tuple[int, int]


@dataclass
class Deliveries:
    """The records that all consumers of a group got, in the order of their arrival."""

    values: dict[Place, bytes | None] = field(default_factory=dict)
    counts: defaultdict[Place, list[int]] = field(default_factory=lambda: defaultdict(list))
    accepted: set[Place] = field(default_factory=set)
    #: Violations of invariant 58: deliveries after a confirmed acceptance, or with a lower count than before.
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, partition: int, delivered: Delivered) -> None:
        with self.lock:
            for offset, value in delivered.records.items():
                place, count = (partition, offset), delivered.counts[offset]
                if place in self.accepted:
                    self.wrong.append(f"{place} was delivered after its acceptance")
                if count < max(self.counts[place], default=0):
                    self.wrong.append(f"{place} was delivered with count {count} after {self.counts[place]}")
                self.values[place] = value
                self.counts[place].append(count)

    def accept(self, partition: int, batches: list[Batch]) -> None:
        with self.lock:
            for first, last, types in batches:
                kinds = types if len(types) > 1 else types * (last - first + 1)
                self.accepted |= {(partition, first + index) for index, kind in enumerate(kinds) if kind == ACCEPT}


class ShareConsumer:
    """A member in a thread of its own. At its first delivery it releases every record whose value says so."""

    def __init__(self, cluster: Cluster, group: str, topic: str, topic_id: bytes, deliveries: Deliveries) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._deliveries = deliveries
        self._members: dict[int, ShareMember] = {}
        self._to_answer: dict[int, dict[At, list[Batch]]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._round()
            except (
                OSError,
                AssertionError,
                IndexError,
                ValueError,
            ):  # a node is down, or its successor is not there yet
                self._stopping.wait(0.2)

    def _round(self) -> None:
        by_leader: defaultdict[int, list[At]] = defaultdict(list)
        for partition, leader in self._cluster.leaders(self._topic).items():
            by_leader[leader].append((self._topic_id, partition))
        for leader in set(self._members) - set(by_leader):
            self._drop(leader)
        for leader, partitions in by_leader.items():
            try:
                self._fetch(leader, partitions)
            except (OSError, AssertionError):
                self._drop(leader)

    def _fetch(self, leader: int, partitions: list[At]) -> None:
        member = self._members.get(leader)
        if member is None or sorted(member.partitions) != sorted(partitions):
            self._drop(leader)
            member = ShareMember(Wire(self._cluster.nodes[leader].port), self._group, partitions)
            self._members[leader] = member
        to_answer = self._to_answer.pop(leader, {})
        answers = member.fetch(to_answer, max_wait_ms=100, max_records=50, batch_size=20)
        for at, batches in to_answer.items():
            if answers[at].acknowledge_error == ErrorCode.NONE:
                self._deliveries.accept(at[1], batches)
        for at, delivered in answers.items():
            assert delivered.error == ErrorCode.NONE, delivered.error
            self._deliveries.add(at[1], delivered)
            if delivered.acquired:
                self._to_answer.setdefault(leader, {})[at] = [
                    (first, last, [self._kind(delivered, offset) for offset in range(first, last + 1)])
                    for first, last, _ in delivered.acquired
                ]

    def _kind(self, delivered: Delivered, offset: int) -> int:
        value = delivered.records.get(offset)
        if value is None:
            return 0
        return RELEASE if value.endswith(b"again") and delivered.counts[offset] == 1 else ACCEPT

    def _drop(self, leader: int) -> None:
        self._to_answer.pop(leader, None)
        member = self._members.pop(leader, None)
        if member is not None:
            member.wire.__exit__()


def any_node(cluster: Cluster, ask: Callable[[Wire], T]) -> T:
    """Return the answer of the first node that has one."""
    for node in cluster.nodes.values():
        try:
            with Wire(node.port) as wire:
                return ask(wire)
        except OSError:
            continue
    raise AssertionError("no node answers")
