"""Reports of leaders and replicas to the active controller: in few requests, which are retried until there is a response.

UntilAnswered          the requests
DirectoryAssignments   in which log directory a replica is (KIP-858, AssignReplicasToDirs)
AlterPartitionSender   the ISR that a leader proposes (KIP-497, AlterPartition)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from ottla.broker.cluster.channels import ControllerChannel
from ottla.broker.replication.isr import ANY_EPOCH
from ottla.broker.replication.partition import Partition
from ottla.controller.metadata.cluster import ClusterImage
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import LOST_DIR, PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_DIRECTORIES
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataRequest,
)
from ottla.protocol.messages.assign_replicas_to_dirs import (
    TopicDataRequest as AssignedTopic,
)
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.server.clock import pause
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
#: The active controller decides a request in one turn of its event loop, so this is its own limit of a turn
#: (controller/decisions/leaving.py). Kafka sends 2,250 directories, and all ISRs at once.
PARTITIONS_A_REQUEST = 400
#: Kafka's AlterPartitionManager retries after the same time.
ISR_RETRY_MS = 50
DIRECTORY_RETRY_MS = 500
#: Errors of a directory's report: the replica was deleted or moved, and the metadata shows that, or soon will.
DIRECTORY_OVERTAKEN = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)

Key = TypeVar("Key")
Value = TypeVar("Value")


class UntilAnswered(Generic[Key, Value]):
    """Sends bounded requests to the controller, one at a time, until each is answered.

    A newer value of a key replaces the pending one; the caller handles errors in the response.
    """

    def __init__(
        self,
        world: World,
        controller: ControllerChannel,
        api: str,
        ask: Callable[[dict[Key, Value]], Awaitable[Iterable[Key]]],
        *,
        retry_ms: int,
        asked_max: int = PARTITIONS_A_REQUEST,
    ) -> None:
        """Take `ask`, which returns the values to retry after `retry_ms`."""
        self._world = world
        self._controller = controller
        self._api = api
        self._ask = ask
        self._retry_ms = retry_ms
        self._asked_max = asked_max
        self._waiting: dict[Key, Value] = {}
        self._running = self._closed = False

    def enqueue(self, key: Key, value: Value) -> None:
        self._waiting[key] = value
        if not self._running and not self._closed:
            self._running = True
            self._world.spawn(self._run(), self._api)

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    async def answer(self, request: object) -> Any:
        """Send a request; return None if there is no response, or one with a top-level error."""
        try:
            response = await self._controller.request(request, timeout_ms=REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            log.warning("%s was not answered: %s", self._api, error)
            return None
        if response.error_code != ErrorCode.NONE:
            log.info("%s was answered %s", self._api, ErrorCode(response.error_code).name)
            return None
        return response

    async def _run(self) -> None:
        try:
            while self._waiting and not self._closed:
                asked = dict(islice(self._waiting.items(), self._asked_max))
                for key in asked:
                    del self._waiting[key]
                try:
                    again = list(await self._ask(asked))
                except Exception:
                    # After an unexpected exception the values must be retried: a proposed ISR must not stay unsent.
                    log.exception("%s: the answer could not be handled, so it is asked again", self._api)
                    again = list(asked)
                if again and not self._closed:
                    await pause(self._world.clock, self._retry_ms)
                    for key in again:
                        self._waiting.setdefault(key, asked[key])
        finally:
            self._running = False


Replica = tuple[bytes, int]


def knows_directories(image: MetadataImage) -> bool:
    return image.features.metadata_version >= MV_DIRECTORIES


class DirectoryAssignments:
    """Reports of the directories of one node's replicas, if the metadata differs: one request at a time.

    It differs after a disk was replaced, and if the controller left the choice among several directories to the broker. The
    controller elects no replica whose directory is not registered, and moves leaders away from a failed directory: both depend
    on these reports. Below metadata.version 3.7-IV2 they wait: the controller would reject every report, and Kafka's logs every
    rejection.
    """

    def __init__(
        self,
        world: World,
        node_id: int,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._broker_epoch = broker_epoch
        self._unreported: UntilAnswered[Replica, bytes] = UntilAnswered(
            world,
            controller,
            "AssignReplicasToDirs",
            self._ask,
            retry_ms=DIRECTORY_RETRY_MS,
        )

    def assign(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        self._unreported.enqueue((topic_id, index), directory_id)

    def report(self, topic_id: bytes, index: int, directory: LogDir, registered: bytes) -> None:
        """Report a replica whose directory differs from the controller's: it could not lead, and a failure of its directory would not be noticed."""
        if directory.online and directory.directory_id != registered:
            self.assign(topic_id, index, directory.directory_id)

    def report_damage(
        self, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> None:
        """Report a replica that cannot be opened as one in a lost directory: it is removed from the ISR, and another one leads.

        KIP-858 knows failures of whole directories only. Once the replica has a log again, `report` takes this back.
        """
        if knows_directories(image) and registration.directory(self._node_id) != LOST_DIR:
            self.assign(topic_id, index, LOST_DIR)

    def close(self) -> None:
        self._unreported.close()

    async def _ask(self, asked: dict[Replica, bytes]) -> Iterable[Replica]:
        """Send the assignments; return those to retry."""
        if not knows_directories(self._image()):
            return asked
        response: AssignReplicasToDirsResponse | None = await self._unreported.answer(self._request(asked))
        if response is None:
            return asked
        settled = {
            (topic.topic_id, row.partition_index)
            for directory in response.directories
            for topic in directory.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE or row.error_code in DIRECTORY_OVERTAKEN
        }
        return [replica for replica in asked if replica not in settled]

    def _request(self, asked: Mapping[Replica, bytes]) -> AssignReplicasToDirsRequest:
        directories: dict[bytes, dict[bytes, list[PartitionIndex]]] = {}
        for (topic_id, index), directory_id in asked.items():
            rows = directories.setdefault(directory_id, {}).setdefault(topic_id, [])
            rows.append(PartitionIndex(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryDataRequest(
                    id=directory_id,
                    topics=[AssignedTopic(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
                )
                for directory_id, topics in directories.items()
            ],
        )


#: The sent proposals: the identity of the set object shows whether a response is for an older proposal.
Asked: TypeAlias = dict[tuple[bytes, int], tuple[Partition, frozenset[int]]]


class AlterPartitionSender:
    """The ISR proposals of one node: a compare-and-set of ISRs, many partitions in one request, one request at a time.

    Until the controller's response, or newer metadata, a leader's high watermark waits for the maximal ISR, the
    union of committed and proposed members (isr.py). Proposals without a response are sent again.
    """

    def __init__(
        self,
        world: World,
        node_id: int,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        cluster: Callable[[], ClusterImage],
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._cluster = cluster
        self._proposing: UntilAnswered[Partition, None] = UntilAnswered(
            world, controller, "AlterPartition", self._ask, retry_ms=ISR_RETRY_MS
        )

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        """Return False if the replica's broker is fenced, shutting down, or another process than the one that fetched (KIP-903)."""
        broker = self._cluster().brokers.get(replica_id)
        return broker is not None and broker.active and broker_epoch in (ANY_EPOCH, broker.epoch)

    def submit(self, partition: Partition) -> None:
        """Send `partition.isr.proposed`."""
        self._proposing.enqueue(partition, None)

    def close(self) -> None:
        self._proposing.close()

    async def _ask(self, partitions: dict[Partition, None]) -> Iterable[Partition]:
        """Send the proposals; return those to retry: without a response, or rejected for a transient reason."""
        asked = [partition for partition in partitions if partition.isr.proposed is not None]
        if not asked:
            return ()
        request, by_key = self._request(asked)
        response: AlterPartitionResponse | None = await self._proposing.answer(request)
        if response is None:
            return asked
        again = []
        for topic in response.topics:
            for answer in topic.partitions:
                partition, proposed = by_key.pop((topic.topic_id, answer.partition_index), (None, None))
                if partition is None or partition.isr.proposed is not proposed:
                    continue  # newer metadata arrived before the response
                if answer.error_code == ErrorCode.NONE:
                    partition.isr_altered(answer.leader_epoch, answer.partition_epoch, answer.isr)
                elif partition.isr_rejected(ErrorCode(answer.error_code)):
                    again.append(partition)
        return again

    def _request(self, partitions: list[Partition]) -> tuple[AlterPartitionRequest, Asked]:
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        topics: dict[bytes, TopicDataRequest] = {}
        by_key: Asked = {}
        for partition in partitions:
            proposed = partition.isr.proposed
            assert proposed is not None
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = TopicDataRequest(topic_id=partition.topic_id, partitions=[])
                request.topics.append(topic)
            by_key[partition.topic_id, partition.index] = (partition, proposed)
            topic.partitions.append(
                PartitionDataRequest(
                    partition_index=partition.index,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=replica, broker_epoch=self._epoch_of(partition, replica))
                        for replica in sorted(proposed)
                    ],
                    partition_epoch=partition.isr.partition_epoch,
                )
            )
        return request, by_key

    def _epoch_of(self, partition: Partition, replica: int) -> int:
        if replica == self._node_id:
            return self._broker_epoch()
        follower = partition.followers.get(replica)
        return ANY_EPOCH if follower is None else follower.broker_epoch
