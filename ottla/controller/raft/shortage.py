"""The writes of a replica of the quorum, and its reaction while its disk has no room, or the process no descriptor.

    refused    a leader's append finds no room before the core has taken a step: the client gets the reason, and nothing has changed
    reserved   the core has taken a step, and its votes or batches find no room: a piece of the reserve is given up for them
    standing   the reserve is used up, too: the replica stands still, as a process that was stopped (SIGSTOP), until it can write

All of it ends by itself once there is room. A leader that has to refuse resigns once in each shortage, because another voter's
disk may have room; if none has, the leader that has resigned already stays, and refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.controller.raft.batches import batch_bytes, control_bytes
from ottla.controller.raft.effects import Effects
from ottla.controller.raft.messages import ControlRecords
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import Clock, TimerHandle
from ottla.storage.errors import DiskFull, OutOfResources, StorageFailure

logger = logging.getLogger(__name__)

#: The pause before a write that the replica waits for is tried again.
RETRY_MS = 100
#: The interval of looking for room.
LOOK_MS = 1_000
#: The interval of the line in the log.
REPEAT_MS = 60_000


class LogWriter:
    """Writes the decisions of the core, or keeps them until there is room."""

    def __init__(
        self,
        clock: Clock,
        node_id: int,
        log: MetadataLog,
        on_written: Callable[[Effects], None],
        on_refusal: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Take `on_written`, which gets the effects of a step that had to wait, and `on_refusal`, which is called once in each shortage of a leader."""
        self._clock = clock
        self._node_id = node_id
        self._log = log
        self._on_written = on_written
        self._on_refusal = on_refusal
        self._on_failure = on_failure
        #: The reason why there is no room, in words for operators, or None while there is some.
        self.shortage: str | None = None
        self._unwritten: Effects | None = None
        self._has_refused = False
        self._said_ms = -REPEAT_MS
        self._timers: dict[Callable[[], None], TimerHandle] = {}
        self._stopped = False

    @property
    def is_standing(self) -> bool:
        """Return True while a step waits for room: the core must not take another one."""
        return self._unwritten is not None

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def write(self, effects: Effects) -> bool:
        """Write the changes of a step of the core. Return False if they have to wait for room.

        Raises:
            StorageFailure: the disk has failed.
        """
        assert self._unwritten is None, "a step before the last one is written"
        try:
            self._log.write(effects, self._clock.wall_ms())
            return True
        except DiskFull as shortage:
            self._unwritten = effects
            self.met(shortage)
            self._later(RETRY_MS, self._write_again)
            return False

    def _write_again(self) -> None:
        effects, self._unwritten = self._unwritten, None
        assert effects is not None
        try:
            if self.write(effects):
                self._on_written(effects)
        except Exception as failure:
            self._on_failure(failure)

    def make_room(self, batches: Sequence[tuple[int, list[bytes] | ControlRecords]]) -> None:
        """Make room for a leader's batches, before the core gets them: the core cannot give them back.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, there is none.
            StorageFailure: the disk has failed.
        """
        if not self.is_standing:
            now_ms = self._clock.wall_ms()
            try:
                self._log.make_room(
                    [_size(data, now_ms) for _, data in batches], sum(count for count, _ in batches), now_ms
                )
                return
            except DiskFull as shortage:
                self.met(shortage)
                if not isinstance(shortage, OutOfResources) and not self._has_refused:
                    self._has_refused = True
                    self._later(0, self._on_refusal)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The active controller has {self.shortage}")

    def met(self, shortage: DiskFull) -> None:
        """A write or a flush has found no room: say so, and look from now on whether there is some."""
        is_full = not isinstance(shortage, OutOfResources)
        what = "no room for changes of metadata on its disk" if is_full else "no descriptor or memory"
        self.shortage = f"{what}: {shortage}"
        now_ms = self._clock.mono_ms()
        if now_ms - self._said_ms >= REPEAT_MS:
            self._said_ms = now_ms
            logger.error("[raft %d] This node has %s", self._node_id, self.shortage)
        if self._look not in self._timers:
            self._later(LOOK_MS, self._look)

    def _look(self) -> None:
        try:
            has_room = self._log.reserve.fill()
        except StorageFailure as failure:
            self._on_failure(failure)
            return
        if not has_room:
            self._later(LOOK_MS, self._look)
            return
        logger.info("[raft %d] The metadata log has room again", self._node_id)
        self.shortage, self._has_refused, self._said_ms = None, False, -REPEAT_MS

    def _later(self, delay_ms: int, run: Callable[[], None]) -> None:
        def fire() -> None:
            del self._timers[run]
            run()

        if not self._stopped:
            self._timers[run] = self._clock.call_later(delay_ms, fire)


def _size(data: list[bytes] | ControlRecords, now_ms: int) -> int:
    if isinstance(data, ControlRecords):
        return len(control_bytes(data, base_offset=0, epoch=0, now_ms=now_ms))
    return batch_bytes(data)
