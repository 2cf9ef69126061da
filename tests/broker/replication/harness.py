"""One partition on three brokers without network or clock: the real partitions, logs and controller decisions, driven by commands.

    topic min_isr=2                    on brokers 1, 2 and 3, led by 1; `replicas=1,2 unclean=true elr=off` change that
    produce 1 3 [acks=1]               broker 1 appends three records, each a batch
    fetch 2                            2 fetches from the leader it knows, and does what the answer says
    controller                         the proposals that wait reach the controller, and the answers their leaders
    metadata 2 3                       2 and 3 read the newest metadata
    pass 31s                           time passes, and leaders look at who lags behind
    fence 1, unfence 1                 the controller gives a broker up, which lives on; and takes it back
    return 1 [clean] [lost=2]          as a new process, that has lost the last two records
    allow-unclean, reassign 2,3, elect what an operator asks of the controller
    show                               where everybody stands

Nothing happens by itself: without its command a message has not been delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla.broker.fetch.session import FetchPartition
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.truncation import truncation_offset
from ottla.broker.replication.wakeups import Wakeups
from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import register_broker
from ottla.controller.decisions.elections import elect_leaders, elect_unclean_leaders
from ottla.controller.decisions.reassignment import alter_partition_reassignments
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import supported_levels
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.fetch import EpochEndOffset, PartitionData
from ottla.protocol.messages.shared_structs import Feature, Listener, TopicNamePartitions
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log_config import LogConfig
from tests.broker.fetch.one_partition import fetched
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import Flushes
from tests.controller.harness import CLUSTER_ID, DecisionHarness, directory, join, topic_id
from tests.manual_clock import ManualClock
from tests.transcripts import Command

TOPIC = "t"
LAG_MS = 30_000
#: Epochs of registrations are offsets of the metadata log, above those that a DecisionHarness begins with.
EPOCHS = 1_000


class Broker:
    """One broker's replica. It is also the way to the controller: proposals wait in `proposal` until they are delivered."""

    def __init__(self, harness: ReplicationHarness, broker_id: int, log: Log) -> None:
        self.id = broker_id
        self.harness = harness
        self.log = log
        self.epoch = harness.controller.epoch(broker_id)
        self.start()

    def start(self) -> None:
        self.partition = made_partition(
            self.id, TOPIC, 0, topic_id(TOPIC), Wakeups(self.harness.clock), Flushes(), LAG_MS, self
        )  # fmt: skip
        self.proposal: frozenset[int] | None = None

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        broker = self.harness.controller.image.cluster.brokers.get(replica_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.epoch)

    def submit(self, partition: Partition) -> None:
        self.proposal = partition.isr.proposed
        assert self.proposal is not None
        self.harness.say(f"{self.id} proposes isr {join(sorted(self.proposal))}")

    def close(self) -> None:
        pass

    def learn(self, registration: PartitionRegistration) -> None:
        partition, now_ms = self.partition, self.harness.clock.mono_ms()
        epochs = (registration.leader_epoch, registration.partition_epoch)
        if registration.leader == self.id:
            partition.become_leader(self.log, *epochs, registration.replicas, registration.isr, now_ms)
        else:
            partition.become_follower(self.log, registration.leader, *epochs, registration.replicas, registration.isr)


class ReplicationHarness:
    def __init__(self, folder: Path) -> None:
        self.printed: list[str] = []
        self.clock = ManualClock()
        self.controller: DecisionHarness
        self.brokers: dict[int, Broker] = {}
        self._folder = folder
        self._next_value = 0

    def commands(self) -> dict[str, Command]:
        return {
            "topic": self.topic,
            "produce": self.produce,
            "fetch": self.fetch,
            "controller": self.deliver_proposals,
            "metadata": self.metadata,
            "pass": self.advance_clock,
            "fence": self.fence,
            "unfence": self.unfence,
            "return": self.register_again,
            "allow-unclean": self.allow_unclean,
            "elect": self.elect,
            "reassign": self.reassign,
            "show": self.show,
        }

    def say(self, line: str) -> None:
        self.printed.append(line)

    def drain(self) -> list[str]:
        printed, self.printed = self.printed, []
        return printed

    # -- The cluster -------------------------------------------------------------------------------------------------

    def topic(self, min_isr: str = "2", replicas: str = "1,2,3", unclean: str = "false", elr: str = "on") -> None:
        self.controller = DecisionHarness(brokers=3, elr=elr != "off")
        configs = {"min_isr": min_isr, "unclean_leader_election_enable": unclean}
        self.controller.topic(TOPIC, replicas.replace(",", " "), **configs)
        config = LogConfig(min_insync_replicas=int(min_isr))
        for broker_id in (1, 2, 3):
            path = str(self._folder / str(broker_id) / f"{TOPIC}-0")
            log = open_log(LogSpec(OsFiles(), Mappings(), path, TOPIC, 0, topic_id(TOPIC), config), clean=True)
            self.brokers[broker_id] = Broker(self, broker_id, log)
        self.metadata("1", "2", "3")
        self.show()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.log.close()

    def show(self) -> None:
        for broker in self.brokers.values():
            self.say(self._described(broker))
        self.say(f"controller: {self.controller.show(TOPIC)}")

    def _described(self, broker: Broker) -> str:
        partition, log = broker.partition, broker.log
        epochs = " ".join(f"{epoch}@{start}" for epoch, start in log.epochs.entries) or "-"
        text = f"{broker.id} {'leads  ' if partition.is_leader else 'follows'} epoch {partition.leader_epoch}"
        text += f"  log {log.log_start_offset}..{log.log_end_offset} ({epochs})  hw {log.high_watermark}"
        if partition.is_leader:
            text += f"  isr {join(sorted(partition.isr.members))}"
            if partition.isr.maximal != partition.isr.members:
                text += f", waits for {join(sorted(partition.isr.maximal))}"
        return text

    # -- Clients, followers, time ------------------------------------------------------------------------------------

    def produce(self, broker_id: str, count: str, acks: str = "all") -> None:
        broker = self.brokers[int(broker_id)]
        wanted = -1 if acks == "all" else 1
        for _ in range(int(count)):
            self._next_value += 1
            try:
                appended = broker.partition.append(batch([b"%d" % self._next_value]), wanted, self.clock.wall_ms())
            except KafkaError as error:
                self.say(f"{broker_id} refuses: {error.code.name}")
                return
            self.say(f"{broker_id} appends {appended.first_offset}")
            if wanted == -1:
                broker.partition.when_committed(appended.last_offset, self._answer(broker, appended.last_offset))

    def _answer(self, broker: Broker, offset: int) -> Callable[[ErrorCode], None]:
        return lambda error: self.say(f"{broker.id} answers for {offset}: {error.name}")

    def fetch(self, broker_id: str) -> None:
        follower = self.brokers[int(broker_id)]
        partition, log = follower.partition, follower.log
        if partition.leader_id < 0:
            self.say(f"{broker_id} knows no leader")
            return
        asked = FetchPartition(
            TOPIC, topic_id(TOPIC), 0, log.log_end_offset, 1 << 20, partition.leader_epoch, log.epochs.latest,
            log.log_start_offset,
        )  # fmt: skip
        leader = self.brokers[partition.leader_id]
        where = f"{leader.id} -> {broker_id}:"
        answer = fetched(leader.partition, asked, follower.id, follower.epoch, self.clock.mono_ms())
        if answer.error_code:
            self.say(f"{where} {ErrorCode(answer.error_code).name}")
            return
        self._take(follower, answer, where)

    def _take(self, follower: Broker, answer: PartitionData, where: str) -> None:
        partition, log = follower.partition, follower.log
        if answer.diverging_epoch.epoch >= 0:
            leader = answer.diverging_epoch
            own = EpochEndOffset(*log.end_offset_for_epoch(leader.epoch))
            offset = truncation_offset(leader, own, log.log_end_offset)
            self.say(
                f"{where} epoch {leader.epoch} ends at {leader.end_offset}: truncated from {log.log_end_offset} to {offset}"
            )
            partition.truncate_as_follower(offset)
            return
        before = log.log_end_offset
        records = bytes(answer.records or b"")
        partition.append_as_follower(records, answer.high_watermark, answer.log_start_offset, self.clock.wall_ms())
        got = f"{before}..{log.log_end_offset - 1}" if records else "nothing"
        self.say(f"{where} {got}, hw {answer.high_watermark}")

    def advance_clock(self, duration: str) -> None:
        self.clock.advance(int(duration.removesuffix("s")) * 1_000)
        for broker in self.brokers.values():
            if (log := broker.partition.leader_log) is not None:
                broker.partition.isr.maybe_shrink(log, self.clock.mono_ms())

    # -- The controller ----------------------------------------------------------------------------------------------

    def metadata(self, *broker_ids: str) -> None:
        registration = self.controller.partition(TOPIC)
        for broker_id in broker_ids:
            broker = self.brokers[int(broker_id)]
            if broker.id in registration.replicas:
                broker.learn(registration)

    def deliver_proposals(self) -> None:
        for broker in self.brokers.values():
            if broker.proposal is not None and broker.partition.isr.proposed is broker.proposal:
                self._ask(broker, broker.proposal)
            broker.proposal = None

    def _ask(self, broker: Broker, isr: frozenset[int]) -> None:
        partition = broker.partition
        epochs = {broker.id: broker.epoch} | {f.broker_id: f.broker_epoch for f in partition.followers.values()}
        wanted = PartitionDataRequest(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in sorted(isr)],
            partition_epoch=partition.isr.partition_epoch,
        )
        request = AlterPartitionRequest(broker_id=broker.id, broker_epoch=broker.epoch)
        request.topics = [TopicDataRequest(topic_id=topic_id(TOPIC), partitions=[wanted])]
        try:
            response = self.controller.decide(alter_partition(self.controller.state, request))
        except KafkaError as error:
            self.say(f"controller -> {broker.id}: {error.code.name}")
            return
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            self.say(f"controller -> {broker.id}: {ErrorCode(answer.error_code).name}")
            if partition.isr_rejected(ErrorCode(answer.error_code)):
                broker.submit(partition)
        else:
            self.say(f"controller -> {broker.id}: isr {join(answer.isr)}")
            partition.isr_altered(answer.leader_epoch, answer.partition_epoch, answer.isr)

    def fence(self, broker_id: str) -> None:
        self.controller.fence(int(broker_id))
        self._say_decision()

    def unfence(self, broker_id: str) -> None:
        self.controller.unfence(int(broker_id))
        self._say_decision()

    def register_again(self, broker_id: str, *clean: str, lost: str = "0") -> None:
        broker = self.brokers[int(broker_id)]
        former_epoch = broker.epoch
        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes((broker.id, self.controller.offset % 251)) * 8,
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker.id)],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in supported_levels().items()
            ],
            log_dirs=[directory(broker.id)],
            previous_broker_epoch=former_epoch if clean == ("clean",) else -1,
        )
        outcome = register_broker(self.controller.state, request, EPOCHS + self.controller.offset, has_session=False)
        broker.epoch = self.controller.decide(outcome)
        self.controller.unfence(broker.id)
        log = broker.log
        if int(lost):
            truncate_to(log, log.log_end_offset - int(lost))
        broker.start()
        self._say_decision()

    def allow_unclean(self) -> None:
        self.controller.replay(
            self.controller.configs.alter(
                self.controller.state, 2, TOPIC, {"unclean.leader.election.enable": (0, "true")}
            )
        )
        self.controller.decide(elect_unclean_leaders(self.controller.state))
        self._say_decision()

    def elect(self) -> None:
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicNamePartitions(topic=TOPIC, partitions=[0])]
        )
        self.controller.decide(elect_leaders(self.controller.state, request))
        self._say_decision()

    def reassign(self, replicas: str) -> None:
        wanted = ReassignablePartition(partition_index=0, replicas=[int(each) for each in replicas.split(",")])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[wanted])])
        self.controller.decide(alter_partition_reassignments(self.controller.state, request))
        self._say_decision()

    def _say_decision(self) -> None:
        self.say(f"controller: {self.controller.show(TOPIC)}")
