"""Reports to the controller in which log directory a replica is, if the metadata differs (KIP-858, AssignReplicasToDirs).

It differs after a disk was replaced, and if the controller left the choice among several directories to the broker. The
controller elects no replica whose directory is not registered, and moves leaders away from a failed directory: both depend
on these reports. Reports without a response are sent again. Below metadata.version 3.7-IV2 they wait: the controller would
refuse each, and Kafka's logs each that it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.replication.to_controller.until_answered import UntilAnswered
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.partitions import LOST_DIR, PartitionRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MV_DIRECTORIES
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataRequest,
    TopicDataRequest,
)
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir

#: The metadata.version from which the controller knows directories.
RETRY_MS = 500
#: The replica was deleted or moved: the metadata shows that, or soon will.
OVERTAKEN = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)

Replica = tuple[bytes, int]


def knows_directories(image: MetadataImage) -> bool:
    return image.features.metadata_version >= MV_DIRECTORIES


class DirectoryAssignments:
    """The assignments of one node: one request at a time."""

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
            retry_ms=RETRY_MS,
        )

    def assign(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        self._unreported.enqueue((topic_id, index), directory_id)

    def report(self, topic_id: bytes, index: int, directory: LogDir, registered: bytes) -> None:
        """Reports a replica whose directory differs from the controller's: it could not lead, and a failure of its directory would not be noticed."""
        if directory.online and directory.directory_id != registered:
            self.assign(topic_id, index, directory.directory_id)

    def report_damage(
        self, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> None:
        """Reports a replica that cannot be opened as one in a lost directory: it is removed from the ISR, and another one leads.

        KIP-858 knows failures of whole directories only. Once the replica has a log again, `report` takes this back.
        """
        if knows_directories(image) and registration.directory(self._node_id) != LOST_DIR:
            self.assign(topic_id, index, LOST_DIR)

    def close(self) -> None:
        self._unreported.close()

    async def _ask(self, asked: dict[Replica, bytes]) -> Iterable[Replica]:
        """Sends the assignments; returns those to retry."""
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
            if row.error_code == ErrorCode.NONE or row.error_code in OVERTAKEN
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
                    topics=[TopicDataRequest(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
                )
                for directory_id, topics in directories.items()
            ],
        )
