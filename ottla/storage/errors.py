"""Exception types for failures of the disk. Errors in requests are `protocol.errors.KafkaError` instead."""

from __future__ import annotations

import errno

#: The disk, or this user's share of it, has no room.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: The process, or the machine, has no descriptor, memory or address space left.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


class StorageFailure(Exception):
    """A write, fsync or read of the file system failed: the log directory goes offline.

    It is never retried: after a failed fsync the kernel may have dropped the dirty pages, and a second fsync would succeed nevertheless.
    """

    def __init__(self, path: str, cause: BaseException | str) -> None:
        # The error of a call by name has the path already.
        names_it = isinstance(cause, OSError) and cause.filename == path and cause.filename2 is None
        super().__init__(f"{path}: {cause.strerror if isinstance(cause, OSError) and names_it else cause}")
        self.path = path
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:  # it may come from another process
        return type(self), (self.path, self.cause)

    def for_good(self) -> StorageFailure:
        """Return the failure for a change that was partly made: even a full disk then takes the log directory offline."""
        return StorageFailure(self.path, self.cause)


class DiskFull(StorageFailure):
    """The disk has no room to grow a file or to create one. Nothing was changed, so the directory stays online.

    Appends fail until there is room again; everything already written stays readable.
    """


class OutOfResources(DiskFull):
    """The process has no descriptor, memory or address space for the call (`ulimit -n`, `ulimit -v`, kernels with 39 bits of addresses).

    It says nothing about the disk. As with a full disk nothing was changed, and a later call may succeed.
    """


class DamagedPartition(StorageFailure):
    """The files of one partition cannot be opened. They are not changed; the other partitions of the directory stay online."""


class LogDirectoryOffline(StorageFailure):
    """The log directory failed earlier and is offline until the node is restarted."""


class CorruptFile(Exception):
    """The contents of a file violate its format. The caller decides whether the file can be rebuilt from the log."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason)


class UnexpectedAppendOffset(Exception):
    """A replicated batch does not continue this log: its offset lies below the log end offset."""

    def __init__(self, offset: int, log_end_offset: int) -> None:
        super().__init__(f"batch at offset {offset}, but the log ends at {log_end_offset}")
        self.offset = offset
        self.log_end_offset = log_end_offset


class LogDirectoryLocked(Exception):
    """Another process holds the lock of this log directory."""


class InconsistentLogDirectory(Exception):
    """meta.properties is damaged, or of another cluster or node; the message names the directory and a remedy."""


class ZooKeeperDirectory(InconsistentLogDirectory):
    """A log directory of a Kafka with ZooKeeper: its metadata is not in it, and no KRaft node can go on with it."""

    def __init__(self, path: str, broker_id: str | None) -> None:
        super().__init__(
            f"{path} is of broker {broker_id} of a Kafka with ZooKeeper: migrate that cluster to KRaft with Kafka 3.9 first (KIP-866), "
            "and finish the migration. Do not format the directory: it has the records"
        )


def failure_of(path: str, error: OSError) -> StorageFailure:
    """Return the error for a failed system call that has changed nothing. A failed fsync or a partial write is always a
    `StorageFailure`.
    """
    if error.errno in FULL:
        return DiskFull(path, error)
    if error.errno in OUT_OF_RESOURCES:
        return OutOfResources(path, error)
    return StorageFailure(path, error)
