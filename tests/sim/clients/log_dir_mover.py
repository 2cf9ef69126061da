"""AlterReplicaLogDirs under load (KIP-113): replicas move to a log directory of their broker, to another one, and back."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.histories import Violation
from tests.sim.clients.connection import Client, Unreachable
from tests.sim.history import TopicPartition

#: The broker has no such replica (yet), or its directory is gone or has failed.
EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class LogDirMover(Client):
    """An operator who moves replicas of `partitions` between `paths`, at any broker."""

    partitions: Sequence[TopicPartition] = ()
    paths: Sequence[str] = ()
    pause_seconds = 1.5

    async def run(self) -> None:
        while not self.stopping:
            await self.pause(self.pause_seconds)
            await self._move()

    async def _move(self) -> None:
        at, path = self.rng.choice(self.bootstrap), self.rng.choice(self.paths)
        topic, partition = self.rng.choice(self.partitions)
        rows = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)])
        operation = self.history.begin(self.name, "move", (at[0], topic, partition, path))
        try:
            answer = await self.ask(at, request)
        except Unreachable as failure:
            self.history.end(operation, "info", str(failure))
            return
        code = ErrorCode(answer.results[0].partitions[0].error_code)
        self.history.end(operation, "ok" if code is ErrorCode.NONE else "info", code.name)
        if code not in EXPECTED:
            raise Violation("13", f"{self.name} moves {topic}-{partition} at {at[0]} and is answered {code.name}")
