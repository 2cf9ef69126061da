"""The directory of a log, the names of such directories, and `partition.metadata`, which ties one to its topic's id.

<topic>-<partition>                      a partition
<topic>-<partition>.<32 hex>-delete      deleted, removed later
<topic>-<partition>.<32 hex>-future      a copy that moves here from another log directory
<topic>-<partition>.<32 hex>-stray       not in the metadata when the node started; kept for the operator
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from threading import Lock

from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.slotted import frozen
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile, DiskFull, LogDirectoryOffline, StorageFailure
from ottla.storage.files import Files, Mappings
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import DELETED_SUFFIX, SegmentFile

PARTITION_METADATA = "partition.metadata"
# This file exists while batches are removed from the end of a log. If the process is killed meanwhile, page cache and disk
# differ; by this file the next process knows that it must bring the end of the log to the disk before it appends.
TRUNCATION = "truncation-in-progress"
# This file exists while a log takes over state from remote storage. Recovery empties a log that has it: its batches, epochs and
# producer states may be of two histories.
RESTORATION = "restoration-in-progress"
DELETE, FUTURE, STRAY = "-delete", "-future", "-stray"
NAME_BYTES_MAX = 255
_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_FUTURE_NAME = re.compile(_NAME.pattern + r"\.[0-9a-f]{32}" + FUTURE)


@frozen
class LogSpec:
    """The arguments with which a log is opened or created."""

    files: Files
    mappings: Mappings
    directory: str
    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    now_ms: int = 0
    jitter: float = 0.0

    def segment(self, base_offset: int, *, size: int = 0, active: bool = True) -> Segment:
        file = SegmentFile(
            self.files, self.mappings, self.directory, base_offset, self.config, size=size, active=active
        )
        return Segment(file, self.now_ms)


class PartitionDir:
    """The directory of one log: its path, whether it is there and usable, and the files in it that wait for their removal."""

    def __init__(self, spec: LogSpec) -> None:
        self.files = spec.files
        self.path = spec.directory
        self.topic, self.partition, self._topic_id = spec.topic, spec.partition, spec.topic_id
        self.exists = True  # False for a log without appends
        self.closed = False  # True once no thread creates files any more
        self.failure: StorageFailure | None = None
        self.on_failure: Callable[[StorageFailure], None] | None = None
        self.lock = Lock()  # held while the first files or a snapshot are created, on any thread
        self.deleted_files: list[str] = []  # the retention job that is under way
        self.before_files: Callable[[], None] | None = None
        self.retiring: RetentionJob | None = None  # the job that is in progress

    @property
    def log_dir(self) -> str:
        """The log directory that contains it: one disk."""
        return self.path.rpartition("/")[0]

    # Failures

    def check_usable(self) -> None:
        if self.failure is not None:
            raise LogDirectoryOffline(self.path, self.failure)
        assert not self.closed, f"{self.path} is closed"

    def fail(self, failure: StorageFailure) -> None:
        """Take the log offline after a failure of the disk. A full disk is not such a failure, because nothing was changed."""
        if not isinstance(failure, DiskFull | LogDirectoryOffline):
            self.failure = failure
            if self.on_failure is not None:
                self.on_failure(failure)

    def call_on_failure(self, on_failure: Callable[[StorageFailure], None] | None) -> None:
        self.on_failure = on_failure

    def close(self) -> None:
        """Close the directory: from now on no thread creates files here."""
        with self.lock:
            self.closed = True

    # The creation of the directory

    def call_before_files(self, before_files: Callable[[], None]) -> None:
        """Set the function that is called before the first files are created, on any thread.

        The checkpoints may have offsets of an earlier topic of the name.
        """
        self.before_files = before_files

    def is_not_made(self) -> None:
        """The log is new: `create` follows, before its first append."""
        self.exists = False

    def create(self, first: Segment, epochs: LeaderEpochs) -> None:
        """Create the directory and its files before the first append, on any thread.

        If the disk is full the directory is removed again: one without partition.metadata is treated as a stray replica.
        """
        if self.before_files is not None and not self.exists:
            self.before_files()  # it waits for the disk, and the event loop may wait for the lock
        with self.lock:
            if self.exists or self.closed:
                return
            try:
                self.files.make_dirs(self.path)
                write_topic_id(self.files, self.path, self._topic_id)
                first.create_file()
            except DiskFull:
                self.files.remove_tree(self.path)
                raise
            epochs.store()
            self.exists = True

    def rename(self, path: str) -> None:
        """Rename the directory, without a sync of its entry.

        Raises:
            StorageFailure: nothing has changed.
        """
        if self.exists:
            self.files.rename(self.path, path)
        self.deleted_files = [path + each.removeprefix(self.path) for each in self.deleted_files]
        self.path = path

    # Files that leave

    def remove(self, segment: Segment) -> None:
        """Remove the files of a segment that was created for an append which failed."""
        segment.mark_removed()
        segment.unmap()
        for name in segment.file.names():
            self.files.remove(name)
        # Appends continue in the previous segment. If the empty new one reappeared after a power loss, it would hide them.
        if self.files.exists(self.path):  # the log may have been deleted meanwhile
            self.files.sync_dir(self.path)

    def delete(self, gone: Iterable[Segment]) -> None:
        """Rename the files to `.deleted`; `Logs.remove_deleted` unlinks them once file.delete.delay.ms has passed."""
        for segment in gone:
            segment.mark_removed()
            segment.unmap()
            for name in segment.file.names():
                if (renamed := self.rename_deleted(name)) is not None:
                    self.deleted_files.append(renamed)

    def rename_deleted(self, name: str) -> str | None:
        """Rename the file to `.deleted` and return its new name, or None if there is no such file."""
        if not self.files.exists(name):
            return None
        self.files.rename(name, name + DELETED_SUFFIX)
        return name + DELETED_SUFFIX

    def take_deleted(self) -> list[str]:
        """Return the files to be removed, once. Another thread may call it while files are added."""
        gone: list[str] = []
        while self.deleted_files:
            gone.append(self.deleted_files.pop())
        return gone


class RetentionJob:
    """The files of segments that retention has taken out of a log (retention.py)."""

    def __init__(
        self,
        place: PartitionDir,
        gone: list[Segment],
        snapshots: list[str],
        fail: Callable[[StorageFailure], None],
        synced_first: list[str],
    ) -> None:
        """Take `synced_first`: with remote storage these snapshots are synced before files go, because after a crash one of
        them is the only source of the producer states.
        """
        self._place, self._fail = place, fail
        self._synced_first, self._syncs_names = synced_first, bool(synced_first)
        place.retiring = self
        self.segments = len(gone)
        # Items are taken from the ends of these lists: the oldest segment is renamed first, and its `.log` file before its indexes.
        self._mapped = gone[::-1]
        self._names = [name for segment in gone for name in segment.file.names()][::-1]
        self._snapshots = snapshots
        self._renamed: list[str] = []
        self._lock = Lock()
        self._failure: StorageFailure | None = None

    # A failure is kept until `end`, because only the log's own thread takes it offline.

    def run(self) -> None:
        """The system calls. A second call goes on where the first has failed, or waits for it and does nothing."""
        with self._lock:
            self._failure = None
            while self._mapped:
                self._mapped.pop().unmap()
            try:
                while self._synced_first:
                    self._place.files.sync_file(self._synced_first[-1])
                    self._synced_first.pop()
                self._sync_names()
                while self._names:
                    if (renamed := self._place.rename_deleted(self._names[-1])) is not None:
                        self._renamed.append(renamed)
                    self._names.pop()
                self._sync_names()
                while self._snapshots:
                    self._place.files.remove(self._snapshots[-1])
                    self._snapshots.pop()
            except StorageFailure as failure:
                self._failure = failure

    def _sync_names(self) -> None:
        if self._syncs_names:
            self._place.files.sync_dir(self._place.path)

    def end(self) -> None:
        """Count the renamed files.

        Raises:
            StorageFailure: the log directory goes offline (`DiskFull`: the job is the next one again).
        """
        place = self._place
        if place.retiring is not self:
            return  # a truncation has ended it
        failure = None if place.closed else self._failure  # a deleted log's directory has another name
        if not isinstance(failure, DiskFull):
            place.retiring = None
            place.deleted_files.extend(self._renamed)
        if failure is not None:
            self._fail(failure)
            raise failure


def partition_of(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition's directory name, None for any other name."""
    if name.endswith((DELETE, FUTURE, STRAY)) and "." in name:
        return None
    found = _NAME.fullmatch(name)
    return (found["topic"], int(found["partition"])) if found else None


def future_partition_of(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a future log's directory name, None for any other name."""
    found = _FUTURE_NAME.fullmatch(name)
    return (found["topic"], int(found["partition"])) if found else None


def has_future_name(topic: str, partition: int) -> bool:
    """Return False if the topic's name is too long for the directory of a future log: its partitions cannot move."""
    return len(f"{topic}-{partition}.{bytes(16).hex()}{FUTURE}") <= NAME_BYTES_MAX


def name_with_suffix(topic: str, partition: int, uuid: bytes, suffix: str) -> str:
    """Return the directory name of a deleted, stray or future replica, shortened to the file system's limit."""
    tail = f"-{partition}.{uuid.hex()}{suffix}"
    return topic[: NAME_BYTES_MAX - len(tail)] + tail


def read_topic_id(files: Files, directory: str) -> bytes | None:
    """Return the topic id in `partition.metadata`, None if the file is missing.

    Raises:
        CorruptFile
    """
    path = f"{directory}/{PARTITION_METADATA}"
    data = files.read(path)
    if data is None:
        return None
    try:
        values = dict(line.split(": ", 1) for line in data.decode().splitlines() if line.strip())
        if values["version"].strip() != "0":
            raise ValueError(f"version {values['version']}")
        return uuid_from_str(values["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise CorruptFile(path, str(error)) from error


def sync_topic_id(files: Files, directory: str) -> None:
    """Sync `partition.metadata`: a restart sets aside a partition without it."""
    path = f"{directory}/{PARTITION_METADATA}"
    if files.exists(path):
        files.sync_file(path)


def rewrite_topic_id(files: Files, directory: str) -> None:
    """Rewrite the file with the same bytes to make them dirty: if their fsync failed earlier, the kernel counts them as clean."""
    path = f"{directory}/{PARTITION_METADATA}"
    if data := files.read(path):
        files.pwrite(path, 0, data)


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Write `partition.metadata` into a directory without records; a partly written one is set aside. `sync_topic_id` must follow."""
    text = f"version: 0\ntopic_id: {uuid_to_str(topic_id)}\n"
    files.pwrite(f"{directory}/{PARTITION_METADATA}", 0, text.encode())
