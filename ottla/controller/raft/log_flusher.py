"""The flushes of the metadata log: on a worker, one at a time, and again while there is no room or no descriptor for one."""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.raft.messages import Flushed
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.raft_config import RaftConfig
from ottla.server.clock import pause
from ottla.server.world import World
from ottla.storage.errors import DiskFull, OutOfResources

#: The pause before a flush is tried again.
RETRY_MS = 100


class LogFlusher:
    """Flushes of the metadata log: on a worker, one at a time, so that all appends during a flush share the next one."""

    def __init__(
        self,
        world: World,
        config: RaftConfig,
        state: QuorumState,
        log: MetadataLog,
        on_flushed: Callable[[Flushed], None],
        on_failure: Callable[[BaseException], None],
        on_shortage: Callable[[DiskFull], None],
    ) -> None:
        self.is_wanted = self.is_running = False
        self._world = world
        self._config = config
        self._state = state
        self._log = log
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._on_shortage = on_shortage
        self._stopped = self._given_up = False

    def want(self) -> None:
        """Flush all appended records. A leader waits for `append_linger_ms` for more of them."""
        self.is_wanted = True
        if self.is_running:
            return
        self.is_running = True
        if self._config.append_linger_ms > 0 and self._state.is_leader:
            self._world.clock.call_later(self._config.append_linger_ms, self._spawn)
        else:
            self._spawn()

    def stop(self) -> None:
        """Let a running flush end, without waiting for descriptors."""
        self._stopped = True

    def give_up(self) -> None:
        """The replica has failed: the running flush is the last."""
        self._given_up = True

    def _spawn(self) -> None:
        self._world.spawn(self.flush(), "raft flush")

    async def flush(self) -> None:
        """Flush until no flush is wanted any more."""
        self.is_running = True
        try:
            while self.is_wanted and not self._given_up:
                self.is_wanted = False
                generation, offset = self._state.log.generation, self._state.log.end_offset
                try:
                    if (job := self._log.begin_flush()) is not None:
                        await self._world.workers.run(job.run)
                        if not self._log.end_flush(job, self._world.clock.wall_ms()):
                            self.is_wanted = True
                except DiskFull as shortage:
                    if self._stopped:
                        return
                    self._on_shortage(shortage)
                    self.is_wanted = True
                    if not isinstance(shortage, OutOfResources) and self._log.reserve.give():
                        continue
                    await pause(self._world.clock, RETRY_MS)
                    continue
                self._on_flushed(Flushed(generation, offset))
        except Exception as failure:
            self._on_failure(failure)
        finally:
            self.is_running = False
