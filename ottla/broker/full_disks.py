"""What operators see of a full disk: an ERROR each minute, a readiness check that fails, and the free bytes of each log directory.

Nothing else shows it: a full disk is no failed disk, what is written stays readable, and each client is only answered
KAFKA_STORAGE_ERROR. A directory counts as full while an append to one of its logs has failed for lack of room, and as one that
has room again when such an append succeeds, or when `ROOM_BYTES` are free: producers may have gone elsewhere meanwhile.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

from ottla.server.clock import Clock
from ottla.server.metrics import GAUGE, Family, Sample
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.open_logs import OpenLogs
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

#: The interval of looking for appends that failed: 10,000 logs take a millisecond.
LOOK_MS = 2_000
REPEAT_MS = 60_000
#: With so much room the next append most likely succeeds, unless it is a quota of the file system that ended the last one.
ROOM_BYTES = 1 << 20


class FullDisks:
    """The log directories of a broker that refuse appends for lack of room."""

    def __init__(self, clock: Clock, files: Files, logs: OpenLogs) -> None:
        self._clock = clock
        self._files = files
        self._logs = logs
        #: Path -> what is wrong, for operators.
        self.full: dict[str, str] = {}
        self._written_ms: dict[str, int] = {}

    def look(self) -> None:
        """A scheduled task: finds full directories, and writes a line for each, once a minute."""
        now_ms = self._clock.mono_ms()
        for directory in self._logs.directories:
            text = self._refusal(directory) if directory.online else None
            if text is None:
                if self.full.pop(directory.path, None) is not None:
                    del self._written_ms[directory.path]
                    log.info("Log directory %s has room again", directory.path)
                continue
            self.full[directory.path] = text
            written_ms = self._written_ms.get(directory.path)
            if written_ms is None or now_ms - written_ms >= REPEAT_MS:
                self._written_ms[directory.path] = now_ms
                log.error("%s", text)

    def metrics(self) -> Iterator[Family]:
        samples = []
        for directory in self._logs.directories:
            free = self._free(directory) if directory.online else None
            if free is not None:
                samples.append(Sample({"logdirectory": directory.path}, free))
        yield Family("ottla_log_directory_free_bytes", GAUGE, "Free bytes of the volume of each log directory", samples)

    def _refusal(self, directory: LogDir) -> str | None:
        refused = [each for each in self._logs.in_directory(directory) if type(each.room.append_failure) is DiskFull]
        free = self._free(directory) if refused else None
        if free is None or (free >= ROOM_BYTES and not any(map(_is_over_quota, refused))):
            return None
        names = f"{refused[0].topic}-{refused[0].partition}"
        if len(refused) > 1:
            names += f" and {len(refused) - 1} more partitions"
        return f"Cannot append to {names}: no space left in {directory.path} ({free} bytes free)"

    def _free(self, directory: LogDir) -> int | None:
        try:
            return self._files.usable_bytes(directory.path)[1]
        except StorageFailure:
            return None


def _is_over_quota(refused: Log) -> bool:
    failure = refused.room.append_failure
    return failure is not None and isinstance(failure.cause, OSError) and failure.cause.errno == errno.EDQUOT
