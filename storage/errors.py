"""What can go wrong with the disk, as types. A peer's mistake is a `protocol.errors.KafkaError` instead."""

from __future__ import annotations


class StorageFailure(Exception):
    """A write, fsync or read of the file system failed: the log directory is not to be trusted any more.

    It is never retried: after a failed fsync the kernel may have dropped the dirty pages, and a second one would lie.
    """

    def __init__(self, path: str, cause: BaseException | str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:  # it may come from another process
        return type(self), (self.path, self.cause)

    def for_good(self) -> StorageFailure:
        """Something was changed half-way: even a full disk then takes the log directory offline."""
        return StorageFailure(self.path, self.cause)


class DiskFull(StorageFailure):
    """No room to grow a file or to write a new one. Nothing was changed, so the directory stays in use.

    Appends are refused until there is room again; everything already written stays readable.
    """


class NoAddressSpace(DiskFull):
    """No more of a file can be mapped (39-bit kernels, `ulimit -v`). As with a full disk nothing has changed, and it may pass."""


class DamagedPartition(StorageFailure):
    """The files of one partition cannot be opened. They are left as they are; the rest of the directory is in use."""


class LogDirectoryOffline(StorageFailure):
    """The log directory failed earlier, and takes no more writes until the node is started again."""


class CorruptFile(Exception):
    """A file of ours does not hold what its format says; the caller knows whether it can be made again from the log."""

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
    """Another process uses this log directory."""


class InconsistentLogDirectory(Exception):
    """meta.properties is damaged, or of another cluster or node; the message says which directory and what to try."""
