"""Replicas move between two log directories under idempotent load, and the node is killed at any moment of that, again and again."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.chaos.history import PARTITIONS, TOPIC, Load, create_topic, judge, read_everything
from tests.chaos.kill_cycles import Verdict
from tests.chaos.node_process import NodeProcess


class Moves:
    """The partitions' directories, as a client sees and changes them."""

    def __init__(self, node: NodeProcess, directories: list[Path], rng: random.Random) -> None:
        self._node, self._directories, self._rng = node, directories, rng

    def begin(self) -> None:
        """Begin to move each partition to one of the directories, or let it stay."""
        wanted: dict[str, list[int]] = {}
        for partition in range(PARTITIONS):
            wanted.setdefault(str(self._rng.choice(self._directories)), []).append(partition)
        rows = [
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=partitions)])
            for path, partitions in wanted.items()
        ]
        with Wire(self._node.port) as wire:
            response = wire.request(AlterReplicaLogDirsRequest(dirs=rows))
        codes = {row.error_code for topic in response.results for row in topic.partitions}
        assert codes == {0}, codes

    def places(self) -> dict[int, str]:
        """Return partition -> directory, without partitions that still move."""
        found: dict[int, str] = {}
        moving: set[int] = set()
        with Wire(self._node.port) as wire:
            for result in wire.request(DescribeLogDirsRequest(topics=None)).results:
                for row in (row for topic in result.topics if topic.name == TOPIC for row in topic.partitions):
                    found[row.partition_index] = result.log_dir
                    moving |= {row.partition_index} if row.is_future_key else set()
        return {partition: path for partition, path in found.items() if partition not in moving}


def run(cycles: int, seed: int) -> tuple[Verdict, int]:
    """Return the results of the cycles, and the number of partitions that were in another directory after one of them."""
    rng = random.Random(seed)
    verdict, moved = Verdict(cycles), 0
    with tempfile.TemporaryDirectory(prefix="ottla-moves-") as place:
        directories = [Path(place, "a"), Path(place, "b")]
        node = NodeProcess(log_dirs=",".join(map(str, directories)), log_segment_bytes="1048576")
        try:
            node.start()
            create_topic(node.bootstrap, 1)
            load = Load(node.bootstrap)
            load.wait_for_acknowledgements(500)
            moves = Moves(node, directories, rng)
            for _ in range(cycles):
                before = moves.places()
                moves.begin()
                load.wait_for_acknowledgements(rng.choice((1, 20, 200, 1000)))
                node.kill()
                verdict.restart_seconds.append(node.start())
                eventually(
                    lambda: len(moves.places()) == PARTITIONS, "the end of the moves that the kill interrupted", 60
                )
                moved += sum(before.get(partition) != path for partition, path in moves.places().items())
            load.stop()
            verdict.sent, verdict.acknowledged = load.sent, len(load.acknowledged)
            places = read_everything(node.bootstrap)
            verdict.read = len(places)
            verdict.problems = judge([load], places)
        finally:
            node.remove()
    return verdict, moved
