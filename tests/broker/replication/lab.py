"""One partition on three brokers without network or clock: the real partitions, logs and controller decisions, driven by words.

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

Nothing happens by itself: what is not said in a script has not been delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla.broker.replication.fetch_session import FetchPartition
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.purgatory.wakeups import Wakeups
from ottla.broker.replication.read import Reader, read, record_position
from ottla.broker.replication.truncation import EndOfEpoch, truncation_offset
from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import register_broker
from ottla.controller.decisions.elections import elect_leaders, elect_unclean_leaders
from ottla.controller.decisions.reassignment import alter_partition_reassignments
from ottla.controller.metadata.partitions import PartitionRegistration
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
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.fetch import PartitionData
from ottla.storage.config import LogConfig
from ottla.storage.files import OsFiles
from ottla.storage.log import Log
from ottla.storage.mappings import Mappings
from ottla.storage.recovery import open_log
from tests.broker.records import batch
from tests.broker.replication.test_partition import Flushes, Timers
from tests.controller.situation import CLUSTER_ID, Situation, directory, join, topic_id

TOPIC = "t"
LAG_MS = 30_000
#: Epochs of registrations are offsets of the metadata log, above those that a Situation begins with.
EPOCHS = 1_000


class Broker:
    """One broker's replica. Also its way to the controller: proposals wait in `proposal` until they are delivered."""

    def __init__(self, lab: Lab, broker_id: int, log: Log) -> None:
        self.id = broker_id
        self.lab = lab
        self.log = log
        self.epoch = lab.situation.epoch(broker_id)
        self.start()

    def start(self) -> None:
        self.partition = Partition(
            self.id, TOPIC, 0, topic_id(TOPIC), Wakeups(self.lab.clock), Flushes(), LAG_MS, self
        )  # fmt: skip
        self.proposal: frozenset[int] | None = None

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        broker = self.lab.situation.image.cluster.brokers.get(replica_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.epoch)

    def submit(self, partition: Partition) -> None:
        self.proposal = partition.proposed_isr
        assert self.proposal is not None
        self.lab.say(f"{self.id} proposes isr {join(sorted(self.proposal))}")

    def close(self) -> None:
        pass

    def learn(self, registration: PartitionRegistration) -> None:
        partition, now_ms = self.partition, self.lab.clock.mono_ms()
        epochs = (registration.leader_epoch, registration.partition_epoch)
        if registration.leader == self.id:
            partition.become_leader(self.log, *epochs, registration.replicas, registration.isr, now_ms)
        else:
            partition.become_follower(self.log, registration.leader, *epochs, registration.replicas, registration.isr)


class Lab:
    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.clock = Timers()
        self.situation: Situation
        self.brokers: dict[int, Broker] = {}
        self._folder = folder
        self._next_value = 0

    def say(self, line: str) -> None:
        self.said.append(line)

    def run(self, line: str) -> list[str]:
        self.said = []
        name, *arguments = line.split()
        getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        return self.said

    # -- The scene ---------------------------------------------------------------------------------------------------

    def do_topic(self, *arguments: str) -> None:
        options = dict(argument.split("=") for argument in arguments)
        self.situation = Situation(brokers=3, elr=options.get("elr") != "off")
        replicas = options.get("replicas", "1,2,3").replace(",", " ")
        configs = {
            "min_isr": options.get("min_isr", "2"),
            "unclean_leader_election_enable": options.get("unclean", "false"),
        }
        self.situation.topic(TOPIC, replicas, **configs)
        config = LogConfig(min_insync_replicas=int(configs["min_isr"]))
        for broker_id in (1, 2, 3):
            path = str(self._folder / str(broker_id) / f"{TOPIC}-0")
            log = open_log(OsFiles(), Mappings(), path, TOPIC, 0, topic_id(TOPIC), config, clean=True)
            self.brokers[broker_id] = Broker(self, broker_id, log)
        self.do_metadata("1", "2", "3")
        self.do_show()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.log.close()

    def do_show(self) -> None:
        for broker in self.brokers.values():
            self.say(self._described(broker))
        self.say(f"controller: {self.situation.show(TOPIC)}")

    def _described(self, broker: Broker) -> str:
        partition, log = broker.partition, broker.log
        epochs = " ".join(f"{epoch}@{start}" for epoch, start in log.epochs.entries) or "-"
        text = f"{broker.id} {'leads  ' if partition.is_leader else 'follows'} epoch {partition.leader_epoch}"
        text += f"  log {log.log_start_offset}..{log.log_end_offset} ({epochs})  hw {log.high_watermark}"
        if partition.is_leader:
            text += f"  isr {join(sorted(partition.isr))}"
            if partition.maximal_isr != partition.isr:
                text += f", waits for {join(sorted(partition.maximal_isr))}"
        return text

    # -- Clients, followers, time ------------------------------------------------------------------------------------

    def do_produce(self, broker_id: str, count: str, acks: str = "acks=all") -> None:
        broker = self.brokers[int(broker_id)]
        wanted = -1 if acks == "acks=all" else 1
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

    def do_fetch(self, broker_id: str) -> None:
        follower = self.brokers[int(broker_id)]
        partition, log = follower.partition, follower.log
        if partition.leader_id < 0:
            self.say(f"{broker_id} knows no leader")
            return
        asked = FetchPartition(
            TOPIC, topic_id(TOPIC), 0, log.log_end_offset, 1 << 20, partition.leader_epoch, log.latest_epoch,
            log.log_start_offset, log.high_watermark,
        )  # fmt: skip
        reader = Reader(follower.id, follower.epoch, read_committed=False, require_leader=True)
        leader = self.brokers[partition.leader_id]
        where = f"{leader.id} -> {broker_id}:"
        try:
            record_position(leader.partition, asked, reader, self.clock.mono_ms())
            answer = read(leader.partition, asked, reader, 1 << 20, True)
        except KafkaError as error:
            self.say(f"{where} {error.code.name}")
            return
        self._take(follower, answer, where)

    def _take(self, follower: Broker, answer: PartitionData, where: str) -> None:
        partition, log = follower.partition, follower.log
        if answer.diverging_epoch.epoch >= 0:
            leader = EndOfEpoch(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
            own = EndOfEpoch(*log.end_offset_for_epoch(leader.epoch))
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

    def do_pass(self, duration: str) -> None:
        self.clock.advance(int(duration.removesuffix("s")) * 1_000)
        for broker in self.brokers.values():
            broker.partition.maybe_shrink_isr(self.clock.mono_ms())

    # -- The controller ----------------------------------------------------------------------------------------------

    def do_metadata(self, *broker_ids: str) -> None:
        registration = self.situation.partition(TOPIC)
        for broker_id in broker_ids:
            broker = self.brokers[int(broker_id)]
            if broker.id in registration.replicas:
                broker.learn(registration)

    def do_controller(self) -> None:
        for broker in self.brokers.values():
            if broker.proposal is not None and broker.partition.proposed_isr is broker.proposal:
                self._ask(broker, broker.proposal)
            broker.proposal = None

    def _ask(self, broker: Broker, isr: frozenset[int]) -> None:
        partition = broker.partition
        epochs = {broker.id: broker.epoch} | {f.broker_id: f.broker_epoch for f in partition.followers.values()}
        wanted = PartitionDataRequest(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in sorted(isr)],
            partition_epoch=partition.partition_epoch,
        )
        request = AlterPartitionRequest(broker_id=broker.id, broker_epoch=broker.epoch)
        request.topics = [TopicDataRequest(topic_id=topic_id(TOPIC), partitions=[wanted])]
        try:
            response = self.situation.decide(alter_partition(self.situation.state, request))
        except KafkaError as error:
            self.say(f"controller -> {broker.id}: {error.code.name}")
            return
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            self.say(f"controller -> {broker.id}: {ErrorCode(answer.error_code).name}")
            if partition.isr_refused(ErrorCode(answer.error_code)):
                broker.submit(partition)
        else:
            self.say(f"controller -> {broker.id}: isr {join(answer.isr)}")
            partition.isr_altered(answer.leader_epoch, answer.partition_epoch, answer.isr)

    def do_fence(self, broker_id: str) -> None:
        self.situation.fence(int(broker_id))
        self._say_decision()

    def do_unfence(self, broker_id: str) -> None:
        self.situation.unfence(int(broker_id))
        self._say_decision()

    def do_return(self, *words: str) -> None:
        broker = self.brokers[int(words[0])]
        lost = next((int(word.removeprefix("lost=")) for word in words if word.startswith("lost=")), 0)
        former_epoch = broker.epoch
        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes((broker.id, self.situation.offset % 251)) * 8,
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker.id)],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in supported_levels().items()
            ],
            log_dirs=[directory(broker.id)],
            previous_broker_epoch=former_epoch if "clean" in words else -1,
        )
        outcome = register_broker(self.situation.state, request, EPOCHS + self.situation.offset, has_session=False)
        broker.epoch = self.situation.decide(outcome)
        self.situation.unfence(broker.id)
        log = broker.log
        if lost:
            log.truncate_to(log.log_end_offset - lost)
        broker.start()
        self._say_decision()

    def do_allow_unclean(self) -> None:
        self.situation.replay(
            self.situation.configs.alter(
                self.situation.state, 2, TOPIC, {"unclean.leader.election.enable": (0, "true")}
            )
        )
        self.situation.decide(elect_unclean_leaders(self.situation.state))
        self._say_decision()

    def do_elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])])
        self.situation.decide(elect_leaders(self.situation.state, request))
        self._say_decision()

    def do_reassign(self, replicas: str) -> None:
        wanted = ReassignablePartition(partition_index=0, replicas=[int(each) for each in replicas.split(",")])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[wanted])])
        self.situation.decide(alter_partition_reassignments(self.situation.state, request))
        self._say_decision()

    def _say_decision(self) -> None:
        self.say(f"controller: {self.situation.show(TOPIC)}")
