"""Small clusters for tests of decisions: a line makes one, decisions change it, and a line shows it.

    cluster = DecisionHarness(brokers=3)
    cluster.topic("orders", replicas="1 2 3", min_isr=2)
    cluster.fence(1)
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 1"

Decisions change the image only by their records, by the same replay as in a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from ottla.controller.decisions.brokers import fence_records, unfence_records
from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.decisions.control_state import ControlSettings, ControlState
from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.decisions.outcome import Decision, Outcome, in_turns
from ottla.controller.metadata.image import EMPTY, MetadataDelta, MetadataImage
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.features import default_levels, supported_levels
from ottla.protocol.internal_topics.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.server.config.broker import BROKER_CONFIGS

CLUSTER_ID = "harness--cluster-id-0"
DEFAULTS = {name: key.default for name, key in BROKER_CONFIGS.items() if not key.required}


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def directory(broker_id: int, number: int = 1) -> bytes:
    return bytes((broker_id, number)) * 8


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


class DecisionHarness:
    def __init__(
        self,
        brokers: int = 3,
        *,
        elr: bool = True,
        metadata_version: int = 30,
        racks: str = "",
        settings: ControlSettings | None = None,
    ) -> None:
        self.offset = 0
        #: The number of records in each turn of the last decision in turns.
        self.turns: list[int] = []
        self.rng = Random(7)
        self.configs = ConfigDecisions(1, DEFAULTS)
        self.state = ControlState(
            EMPTY, ClusterIndex(EMPTY), settings or ControlSettings(node_id=1, cluster_id=CLUSTER_ID)
        )
        levels = default_levels(metadata_version) | {"eligible.leader.replicas.version": int(elr)}
        levels.pop("kraft.version")
        self.replay([FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items() if level])
        for broker_id in range(1, brokers + 1):
            self.broker(broker_id, rack=racks.split()[broker_id - 1] if racks else None)

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def replay(self, records: Iterable[Any]) -> None:
        delta = MetadataDelta(self.state.image)
        for record in records:
            delta.replay(record)
            self.offset += 1
        self.state.image = delta.apply(self.offset, 1)
        self.state.index.update(delta)

    def decide(self, decision: Outcome[Any] | Decision[Any]) -> Any:
        """Let the decision take effect, and return its response."""
        if not isinstance(decision, Outcome):
            return self._decide_in_turns(decision)
        self.replay(decision.records)
        return decision.response

    def _decide_in_turns(self, decision: Decision[Any]) -> Any:
        self.turns, response = [], None
        decide = in_turns(lambda state: decision)
        while response is None:
            outcome = decide(self.state)
            self.turns.append(len(outcome.records))
            response = self.decide(outcome)
        return response

    # Brokers
    def broker(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        fenced: bool = False,
        directories: int = 1,
        epoch: int | None = None,
    ) -> None:
        self.replay(
            [
                RegisterBrokerRecord(
                    broker_id=broker_id,
                    broker_epoch=100 + broker_id if epoch is None else epoch,
                    incarnation_id=bytes((broker_id,)) * 16,
                    end_points=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
                    features=[
                        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                        for name, (lowest, highest) in supported_levels().items()
                    ],
                    rack=rack,
                    fenced=fenced,
                    log_dirs=[directory(broker_id, number) for number in range(1, directories + 1)],
                )
            ]
        )

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.replay(fence_records(self.state, broker_id))

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.replay(unfence_records(self.state, broker_id, self.epoch(broker_id)))

    def epoch(self, broker_id: int) -> int:
        return self.image.cluster.brokers[broker_id].epoch

    # Topics
    def topic(
        self, name: str, replicas: str = "1 2 3", *, isr: str | None = None, partitions: int = 1, **configs: object
    ) -> None:
        """Create a topic. Keyword arguments are configs, with underscores for dots; `min_isr` is min.insync.replicas."""
        records: list[Any] = [TopicRecord(name=name, topic_id=topic_id(name))]
        for key, value in configs.items():
            key = "min.insync.replicas" if key == "min_isr" else key.replace("_", ".")
            records.append(ConfigRecord(resource_type=2, resource_name=name, name=key, value=str(value).lower()))
        in_sync = numbers(replicas if isr is None else isr)
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id(name),
                replicas=numbers(replicas),
                isr=in_sync,
                leader=in_sync[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory(broker_id) for broker_id in numbers(replicas)],
            )
            for index in range(partitions)
        ]
        self.replay(records)

    def partition(self, name: str, index: int = 0) -> PartitionRegistration:
        topic = self.image.topics.by_name(name)
        assert topic is not None, f"no topic {name}"
        return topic.partitions[index]

    def show(self, name: str, index: int = 0) -> str:
        """Return the fields in a fixed order, without those that are empty."""
        partition = self.partition(name, index)
        words = [f"replicas {join(partition.replicas)}", f"isr {join(partition.isr)}"]
        for word, members in (
            ("elr", partition.elr),
            ("last", partition.last_known_elr),
            ("adding", partition.adding_replicas),
            ("removing", partition.removing_replicas),
        ):
            if members:
                words.append(f"{word} {join(members)}")
        words.append("no leader" if partition.leader < 0 else f"leader {partition.leader}")
        words.append(f"epoch {partition.leader_epoch}")
        if partition.leader_recovery_state:
            words.append("recovering")
        return " ".join(words)


def join(members: Iterable[int]) -> str:
    return " ".join(map(str, members)) or "-"
