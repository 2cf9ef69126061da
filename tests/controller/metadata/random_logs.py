"""Random records that may be in a metadata log: all that they refer to exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ottla.protocol.internal_topics import metadata_records as records
from ottla.protocol.messages.shared_structs import EntityData, Feature, Listener

HERE = Path(__file__).parent
#: The first metadata.version that has all types of records, and those at which some records got fields.
DIRECTORIES, ELR, CORDONED = 17, 23, 30
LEVELS = [15, DIRECTORIES, ELR, CORDONED]
NAMES = ["a", "b.c", "b_c", "d"]
NODES = st.integers(1, 4)
NODE_LISTS = st.lists(NODES, min_size=1, max_size=4, unique=True)
IDS = st.integers(1, 6).map(lambda number: bytes(15) + bytes((number,)))


class Log:
    """The log so far, and the objects that it has created."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.records: list[Any] = []
        self.topics: dict[bytes, tuple[str, int]] = {}
        self.brokers: dict[int, int] = {}
        #: Other objects that were added and not removed, by the type of their record and their key.
        self.added: set[tuple[type, Any]] = set()
        self.epoch = 0
        self.level = 0
        self.has_elr = False

    def step(self) -> None:
        self.draw(st.sampled_from(STEPS))(self)

    def add(self, record: Any) -> None:
        self.records.append(record)

    def upgrade(self, level: int) -> None:
        self.level = level
        self.add(records.FeatureLevelRecord(name="metadata.version", feature_level=level))
        if level >= ELR and not self.has_elr and self.draw(st.booleans()):
            self.has_elr = True
            self.add(records.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))

    def directories(self) -> list[bytes]:
        return sorted(self.draw(st.sets(IDS, max_size=2))) if self.level >= DIRECTORIES else []

    def cordoned(self) -> list[bytes] | None:
        return self.draw(st.none() | st.just([])) if self.level >= CORDONED else None

    def members(self) -> list[int] | None:
        """Return the members of an ELR, or None for no change."""
        return self.draw(st.none() | st.just([]) | NODE_LISTS) if self.has_elr else None

    def toggle(self, key: Any, added: Any, removed: Any) -> None:
        """Add the object, even if it is already there, or remove it if it is there."""
        where = (type(added), key)
        if where in self.added and self.draw(st.booleans()):
            self.added.remove(where)
            self.add(removed)
        else:
            self.added.add(where)
            self.add(added)

    def topic(self) -> None:
        name = self.draw(st.sampled_from(NAMES))
        if any(taken == name for taken, _ in self.topics.values()):
            return
        self.epoch += 1
        topic_id = self.epoch.to_bytes(16, "big")
        self.topics[topic_id] = (name, 0)
        self.add(records.TopicRecord(name=name, topic_id=topic_id))
        self.partition()

    def partition(self) -> None:
        if not self.topics:
            return
        topic_id = self.draw(st.sampled_from(sorted(self.topics)))
        name, count = self.topics[topic_id]
        self.topics[topic_id] = (name, count + 1)
        replicas = self.draw(NODE_LISTS)
        self.add(
            records.PartitionRecord(
                topic_id=topic_id,
                partition_id=count,
                replicas=replicas,
                isr=replicas[:1],
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * len(replicas),
                eligible_leader_replicas=replicas[1:] or None if self.has_elr and self.draw(st.booleans()) else None,
            )
        )

    def change(self) -> None:
        candidates = [(key, count) for key, (_, count) in sorted(self.topics.items()) if count]
        if not candidates:
            return
        topic_id, count = self.draw(st.sampled_from(candidates))
        replicas = self.draw(st.none() | NODE_LISTS)
        self.add(
            records.PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=self.draw(st.integers(0, count - 1)),
                isr=self.draw(st.none() | NODE_LISTS),
                leader=self.draw(st.sampled_from([-2, -1, 1, 2])),
                replicas=replicas,
                directories=(
                    None if replicas is None or self.level < DIRECTORIES else [self.draw(IDS) for _ in replicas]
                ),
                removing_replicas=self.draw(st.none() | st.just([]) | NODE_LISTS),
                adding_replicas=self.draw(st.none() | st.just([]) | NODE_LISTS),
                leader_recovery_state=self.draw(st.sampled_from([-1, 0, 1])),
                eligible_leader_replicas=self.members(),
                last_known_elr=self.members(),
            )
        )

    def remove_topic(self) -> None:
        if self.topics:
            topic_id = self.draw(st.sampled_from(sorted(self.topics)))
            del self.topics[topic_id]
            self.add(records.RemoveTopicRecord(topic_id=topic_id))

    def clear_elr(self) -> None:
        self.add(
            records.ClearElrRecord(
                topic_name=self.draw(st.sampled_from(["", *(name for name, _ in self.topics.values())]))
            )
        )

    def config(self) -> None:
        kind = self.draw(st.sampled_from([2, 4, 32]))
        resource = self.draw(st.sampled_from(NAMES if kind != 4 else ["", "1"]))
        value = self.draw(st.none() | st.sampled_from(["1", ""]))
        name = self.draw(st.sampled_from(["x", "y"]))
        self.add(records.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))

    def register(self) -> None:
        broker_id = self.draw(NODES)
        self.epoch += 1
        self.brokers[broker_id] = self.epoch
        self.add(
            records.RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=self.epoch,
                incarnation_id=self.draw(IDS),
                end_points=[Listener(name="P", host="h", port=self.draw(st.integers(0, 65535)))],
                features=[Feature(name="metadata.version", min_supported_version=7)],
                rack=self.draw(st.none() | st.just("r")),
                log_dirs=self.directories(),
                cordoned_log_dirs=self.cordoned(),
            )
        )

    def broker_change(self) -> None:
        if not self.brokers:
            return
        broker_id = self.draw(st.sampled_from(sorted(self.brokers)))
        epoch = self.brokers[broker_id]
        what = self.draw(st.integers(0, 3))
        if what == 0:
            self.add(records.FenceBrokerRecord(id=broker_id, epoch=epoch))
        elif what == 1:
            self.add(records.UnfenceBrokerRecord(id=broker_id, epoch=epoch))
        elif what == 2:
            del self.brokers[broker_id]
            self.add(records.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))
        else:
            self.add(
                records.BrokerRegistrationChangeRecord(
                    broker_id=broker_id,
                    broker_epoch=epoch,
                    fenced=self.draw(st.integers(-1, 1)),
                    in_controlled_shutdown=self.draw(st.integers(0, 1)),
                    log_dirs=self.directories(),
                    cordoned_log_dirs=self.cordoned(),
                )
            )

    def controller(self) -> None:
        controller_id = self.draw(NODES)
        self.toggle(
            controller_id,
            records.RegisterControllerRecord(controller_id=controller_id, incarnation_id=self.draw(IDS)),
            records.UnregisterControllerRecord(controller_id=controller_id),
        )

    def feature(self) -> None:
        name = self.draw(st.sampled_from(["group.version", "share.version"]))
        self.add(records.FeatureLevelRecord(name=name, feature_level=self.draw(st.integers(0, 2))))

    def acl(self) -> None:
        entry_id = self.draw(IDS)
        self.toggle(
            entry_id,
            records.AccessControlEntryRecord(id=entry_id, resource_name=self.draw(st.sampled_from(NAMES))),
            records.RemoveAccessControlEntryRecord(id=entry_id),
        )

    def quota(self) -> None:
        entity = [EntityData(entity_type="user", entity_name=self.draw(st.none() | st.just("u")))]
        self.add(
            records.ClientQuotaRecord(
                entity=entity, key=self.draw(st.sampled_from(["p", "c"])), value=1.5, remove=self.draw(st.booleans())
            )
        )

    def producer_ids(self) -> None:
        self.epoch += 1
        self.add(records.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000 * self.epoch))

    def secrets(self) -> None:
        if self.draw(st.booleans()):
            name = self.draw(st.sampled_from(["u", "w"]))
            self.toggle(
                name,
                records.UserScramCredentialRecord(name=name, mechanism=1, salt=b"s", iterations=4096),
                records.RemoveUserScramCredentialRecord(name=name, mechanism=1),
            )
        else:
            token_id = self.draw(st.sampled_from(["t", "v"]))
            self.toggle(
                token_id,
                records.DelegationTokenRecord(
                    token_id=token_id, owner="User:a", requester="User:c", renewers=["User:b"]
                ),
                records.RemoveDelegationTokenRecord(token_id=token_id),
            )


STEPS = [
    Log.topic, Log.partition, Log.change, Log.change, Log.remove_topic, Log.clear_elr, Log.config, Log.register,
    Log.broker_change, Log.controller, Log.feature, Log.acl, Log.quota, Log.producer_ids, Log.secrets,
]  # fmt: skip


@st.composite
def logs(draw: st.DrawFn, of_kafka: bool = False) -> list[Any]:
    """Return logs of one metadata.version, or with `of_kafka` of several versions that 4.3.1 can read, one after the other."""
    log = Log(draw)
    levels = draw(st.lists(st.sampled_from(LEVELS), min_size=1, max_size=2).map(sorted)) if of_kafka else LEVELS[-1:]
    for level in levels:
        log.upgrade(level)
        for _ in range(draw(st.integers(0, 40))):
            log.step()
    if of_kafka:
        return [record for record in log.records if not isinstance(record, records.UnregisterControllerRecord)]
    return log.records
