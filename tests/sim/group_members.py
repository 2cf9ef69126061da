"""The members of consumer, share and streams groups that a seed has, and what is asked of their groups in the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.broker.share.led_partition import Phase
from tests.sim import dead_letters
from tests.sim.clients import consumer_members, share_members, streams_members
from tests.sim.clients.admin import Admin
from tests.sim.clients.consumer_members import ConsumerGroup, ConsumerMember
from tests.sim.clients.share_ledger import ShareLedger
from tests.sim.clients.share_members import ShareGroup, ShareMember
from tests.sim.clients.streams_members import StreamsGroup, StreamsMember
from tests.sim.cluster import SHARE_DELIVERY_LIMIT, SimCluster
from tests.sim.history import TopicPartition

#: Each has its own random numbers, so that the rest of a seed stays as it was.
CONSUMER_SHARE, SHARE_SHARE, STREAMS_SHARE = 0.3, 0.4, 0.25

#: Makes a client with a name.
Make = Callable[[type[Any], str, random.Random], Any]


class GroupMembers:
    """The members of groups. With `is_able` the cluster has the features from the start, and no scene uses up the seed's time."""

    def __init__(
        self,
        seed: int,
        cluster: SimCluster,
        partitions: Sequence[TopicPartition],
        make: Make,
        *,
        is_able: bool,
        dead_letters: bool,
    ) -> None:
        self._cluster, self._partitions, self._seed = cluster, list(partitions), seed
        self._dead_letters = dead_letters
        #: The newest leader epoch of each partition that any node has known.
        self._epochs: dict[TopicPartition, int] = {}
        self.consumers: list[ConsumerMember] = []
        self.share: list[ShareMember] = []
        self.streams: list[StreamsMember] = []
        if not is_able:
            return
        rng = random.Random(f"consumer members {seed}")
        if rng.random() < CONSUMER_SHARE:
            self._add_consumers(rng, make)
        rng = random.Random(f"share members {seed}")
        if rng.random() < SHARE_SHARE:
            self._add_share(rng, make)
        rng = random.Random(f"streams members {seed}")
        if rng.random() < STREAMS_SHARE:
            self._add_streams(rng, make)

    def _add_consumers(self, rng: random.Random, make: Make) -> None:
        group = ConsumerGroup("consumers", self._partitions)
        for number in range(rng.choice((2, 3))):
            member = make(ConsumerMember, f"k{number}", rng)
            member.group, member.by_expression = group, rng.random() < 0.3
            self.consumers.append(member)

    def _add_share(self, rng: random.Random, make: Make) -> None:
        configs = {"share.auto.offset.reset": "earliest"}
        if rng.random() < 0.5:
            configs["share.isolation.level"] = "read_committed"
        ledger = ShareLedger(SHARE_DELIVERY_LIMIT)
        group = ShareGroup("sharers", self._partitions, ledger, configs, self._leadership)
        for number in range(rng.choice((2, 3))):
            member = make(ShareMember, f"s{number}", rng)
            member.group = group
            self.share.append(member)

    def _add_streams(self, rng: random.Random, make: Make) -> None:
        topic = self._partitions[0][0]
        group = StreamsGroup("streamers", topic, sum(each[0] == topic for each in self._partitions))
        for number in range(rng.choice((2, 3))):
            member = make(StreamsMember, f"f{number}", rng)
            member.group, member.process = group, rng.choice("xy") if number else "x"
            self.streams.append(member)

    async def prepare(self, admin: Admin) -> None:
        """Prepare the groups before the clients start."""
        if self.share and self._dead_letters:
            copies = random.Random(f"copies {self._seed}").random() < 0.5
            await dead_letters.prepare(admin, self._cluster, self.share[0].group.name, copies=copies)

    # -- The end -----------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """No member leaves any more."""
        for consumer in self.consumers:
            consumer.leaves = 0.0
        for stream in self.streams:
            stream.leaves = 0.0
        for sharer in self.share:
            sharer.group.is_calm = True

    def unsettled(self) -> str | None:
        """Return the reason why not every group is stable with everything owned (invariant 42); None if they are."""
        return (
            (consumer_members.unsettled(self.consumers) if self.consumers else None)
            or (share_members.unsettled(self.share) if self.share else None)
            or (streams_members.unsettled(self.streams) if self.streams else None)
        )

    def unread(self) -> str | None:
        """Return the records that the share group has yet to read or to acknowledge; None if there are none."""
        if not self.share:
            return None
        group = self.share[0].group
        for topic, index in self._partitions:
            led = [
                led
                for node in self._cluster.brokers
                if node.is_up and node.server is not None and node.server.broker is not None
                for at, groups in node.server.broker.components.share_leaders._led.items()
                for led in groups.values()
                if led.key.group_id == group.name and (led.partition.topic, at.partition) == (topic, index)
                if led.phase is Phase.ACTIVE and led.partition.leader_log is not None
            ]
            if len(led) != 1:
                return f"{topic}-{index} is led by {len(led)} brokers"
            log = led[0].partition.leader_log
            assert log is not None
            if led[0].state.start_offset < log.last_stable_offset or log.last_stable_offset < log.log_end_offset:
                return (
                    f"{topic}-{index} is read up to {led[0].state.start_offset} of {log}: {led[0].state.in_flight.runs}"
                )
        return None

    def check(
        self,
        everything: Mapping[TopicPartition, Mapping[int, bytes]],
        committed: Mapping[TopicPartition, Mapping[int, bytes]],
    ) -> None:
        """Return whether the share group has read everything, and each record that it gave up has its dead letter."""
        if self.share:
            group = self.share[0].group
            logs = committed if "share.isolation.level" in group.configs else everything
            group.ledger.check(logs)
            if self._dead_letters:
                dead_letters.check(group.ledger, dead_letters.written(self._cluster), logs)

    # -- Leaders -----------------------------------------------------------------------------------------------------

    def _leadership(self, number: int, at: TopicPartition) -> tuple[int, int] | None:
        """Return the life and the epoch in which the broker leads the partition; None if a node knows a newer epoch."""
        newest = self._epochs.get(at, -1)
        for node in self._cluster.nodes:
            if node.server is not None and node.server.started_metadata:
                topic = node.server.metadata.loader.image.topics.by_name(at[0])
                known = None if topic is None else topic.partitions.get(at[1])
                newest = max(newest, -1 if known is None else known.leader_epoch)
        self._epochs[at] = newest
        node = self._cluster.by_number[number]
        if not node.is_up or node.server is None or node.server.broker is None:
            return None
        partition = node.server.broker.replicas.get(*at)
        if partition is None or partition.leader_log is None or partition.leader_epoch < newest:
            return None
        return node.life, partition.leader_epoch
