"""The store of remote segments: what a copy has, what a layout does with it, and the calls of the store, each with a deadline (KIP-405).

The store is what `ottla/tables/store.py` describes; a node hands its broker a function that opens it, so that libraries are imported only
where remote storage is on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.tiers.remote_segments import Epochs, RemoteSegment, TieredPartition
from ottla.protocol.primitives import Buffer, uuid_from_str
from ottla.server.workers import Workers
from ottla.server.world import World
from ottla.storage.files import Files
from ottla.storage.log.log import Log
from ottla.storage.producers import producer_snapshots
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

T = TypeVar("T")

#: Has the id of the cluster whose location it is. It lies beside what the layouts name.
OWNER = "ottla-cluster-id"
#: The start offset and the id of a segment, and which of its objects it is.
OBJECT = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})(\.[\w-]+)", re.ASCII)
SNAPSHOT_SUFFIX, EPOCHS_SUFFIX = producer_snapshots.SUFFIX, ".leader_epoch_checkpoint"


class TierStore(Protocol):
    """The part of a store that remote segments need. All calls block, and raise if the store has failed."""

    def put(self, name: str, data: bytes | memoryview) -> None: ...

    def put_parts(self, name: str, parts: Iterator[bytes]) -> None:
        """Write an object whose parts are made one by one: not all of them are in memory."""

    def put_if_absent(self, name: str, data: bytes) -> bool: ...

    def get(self, name: str) -> Buffer | None: ...

    def size(self, name: str) -> int | None: ...

    def get_range(self, name: str, start: int, length: int) -> Buffer: ...

    def delete(self, name: str) -> None: ...

    def list(self, folder: str) -> Iterator[ListedObject]: ...

    def folders(self, folder: str) -> Sequence[str]: ...

    def sweep(self, before_ms: int) -> Iterator[str]: ...


class ListedObject(Protocol):
    """An object as a listing has it."""

    @property
    def name(self) -> str: ...

    @property
    def modified_ms(self) -> int: ...


class TierFailure(Exception):
    """Remote storage has failed, has not answered in time, or has other bytes than were stored."""


class WrongBytes(TierFailure):
    """The store, or a file that caches its bytes, has other bytes than were stored."""


class StoredSegment(Protocol):
    """A segment in the store, without the details of its layout. The methods block, and raise TierFailure or what the store raises."""

    chunk_bytes: int

    def chunk(self, number: int) -> Buffer:
        """Return the bytes of the log from `number * chunk_bytes` on, as many or up to its end."""

    def file(self, suffix: str) -> Buffer:
        """Return one of the other files whole."""


def claim(store: TierStore, cluster_id: str) -> None:
    """Make the location this cluster's, before something is written or deleted there.

    A fork has the settings and the records of its original, and would delete objects that the original still reads.

    Raises:
        TierFailure: the location is another cluster's.
    """
    store.put_if_absent(OWNER, cluster_id.encode())
    owner = bytes(store.get(OWNER) or b"").decode("utf-8", "replace")
    if owner != cluster_id:
        raise TierFailure(
            f"the location is of cluster {owner}, as its {OWNER} says: ottla.tier.location must be another"
        )


class _Call(Generic[T]):
    """A call on a thread, which may come back after it was given up. Then it undoes its effect, because no record names its
    objects any more.
    """

    def __init__(self, function: Callable[[], T], undo: Callable[[], object]) -> None:
        self._function, self._undo = function, undo
        self.is_given_up = self.is_back = False
        #: The call that was to delete the objects, and has failed.
        self.left: Callable[[], object] | None = None

    def __call__(self) -> T:
        try:
            return self._function()
        finally:
            if self.is_given_up:
                try:
                    self._undo()
                except Exception:  # each store has its own errors; the next `undo_left` tries again
                    self.left = self._undo
            self.is_back = True


class StoreCalls:
    """Calls of a store on threads of their own, some at a time. One that takes too long is given up with its thread, so that
    it does not delay the others. As many as may run at a time may be given up; while so many have not come back, further ones fail at once."""

    def __init__(self, world: World, name: str, at_once: int) -> None:
        self._world, self._name, self._at_once = world, name, at_once
        self._idle: list[Workers] = []
        self._late: list[tuple[_Call[Any], Workers]] = []
        self._left: list[Callable[[], object]] = []
        self._room = asyncio.Semaphore(at_once)
        #: The calls that run, without those given up, and all that want to.
        self.running = self.wanted = 0

    def leave(self, undo: Callable[[], object]) -> None:
        """Undo something at the next `undo_left`."""
        self._left.append(undo)

    async def undo_left(self, timeout_ms: int) -> None:
        """Undo the effects that late calls could not undo themselves. If this fails again, it is left for the next time."""
        self._take_back()
        left, self._left = self._left, []
        for undo in left:
            try:
                await self.run(timeout_ms, undo)
            except TierFailure:
                self._left.append(undo)

    def _take_back(self) -> None:
        """Use the threads of late calls that have come back, and note what these have left undone."""
        for call, workers in self._late:
            if call.is_back:
                self._idle.append(workers)
                if call.left is not None:
                    self._left.append(call.left)
        self._late = [late for late in self._late if not late[0].is_back]

    async def run(
        self, timeout_ms: int, function: Callable[..., T], *args: object, undo: Callable[[], object] = lambda: None
    ) -> T:
        """Return the function's result. `undo` is called on the thread if the function comes back after it was given up.

        Raises:
            TierFailure: it has failed, or has not answered in time.
        """
        self.wanted += 1
        try:
            async with self._room:
                self.running += 1
                try:
                    return await self._run(timeout_ms, partial(function, *args), undo)
                finally:
                    self.running -= 1
        finally:
            self.wanted -= 1

    @property
    def idle_share(self) -> float:
        """Return which share of the calls that may run at a time does not run."""
        return 1 - self.running / self._at_once

    async def _run(self, timeout_ms: int, function: Callable[[], T], undo: Callable[[], object]) -> T:
        self._take_back()
        if len(self._late) >= self._at_once:
            raise TierFailure(f"{len(self._late)} earlier calls have not come back from the store")
        workers = self._idle.pop() if self._idle else self._world.workers.apart(self._name)
        call = _Call(function, undo)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                result = await workers.run(call)
        except TimeoutError:
            call.is_given_up = True
            self._late.append((call, workers))
            raise TierFailure(f"no answer within {timeout_ms} ms") from None
        except TierFailure:
            self._idle.append(workers)
            raise
        except Exception as fault:  # each store has its own errors
            self._idle.append(workers)
            raise TierFailure(f"{type(fault).__name__}: {fault}") from fault
        self._idle.append(workers)
        return result


class SegmentCopy(NamedTuple):
    """The copy of one segment, decided on the loop. A layout writes it to the store, on a thread."""

    place: TieredPartition
    segment: RemoteSegment
    log: memoryview
    files: Files
    #: Names of files by the suffix of their object; a missing one is an error, except for transactions and snapshots.
    paths: Sequence[tuple[str, str]]
    epochs: bytes

    def others(self) -> Iterator[tuple[str, bytes]]:
        """Yield the suffixes and contents of the files beside the log: indexes, producer states, leader epochs. Raises TierFailure."""
        for suffix, path in self.paths:
            data = self.files.read(path)
            if data is None and suffix == SNAPSHOT_SUFFIX:
                data = producer_snapshots.encode(())
            if data is None:
                raise TierFailure(f"{path} is missing")
            yield suffix, data
        yield EPOCHS_SUFFIX, self.epochs


class SegmentLayout(Protocol):
    """Names and contents of objects. All methods block, and raise TierFailure or what the store raises."""

    def put(self, store: TierStore, copy: SegmentCopy) -> None:
        """Write all objects of a segment. The last one is what a reader needs first."""

    def delete(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> None: ...

    def opened(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> StoredSegment: ...

    def partitions(self, store: TierStore) -> Sequence[TieredPartition]:
        """Return the partitions that have a folder in the store. What has another name is not ours."""

    def folder_of(self, place: TieredPartition) -> str: ...

    @property
    def suffixes(self) -> Collection[str]:
        """Return the ends of the names of a segment's objects."""


class FoundObject(NamedTuple):
    """An object of a partition's folder, and whose segment's it is, by its name."""

    name: str
    start: int
    segment_id: bytes
    modified_ms: int


def objects_in(store: TierStore, layout: SegmentLayout, place: TieredPartition) -> list[FoundObject]:
    """Return the objects of a partition's segments. What has another name is not ours."""
    found, folder = [], layout.folder_of(place)
    for each in store.list(folder):  # object stores list folders below, too
        match = OBJECT.fullmatch(each.name.removeprefix(f"{folder}/"))
        if match is not None and match[3] in layout.suffixes and is_uuid(match[2]):
            found.append(FoundObject(each.name, int(match[1]), uuid_from_str(match[2]), each.modified_ms))
    return found


def is_uuid(text: str) -> bool:
    """Return whether 22 characters are an id: of some the last one has bits too many."""
    try:
        uuid_from_str(text)
    except ValueError:
        return False
    return True


def copy_of(log: Log, place: TieredPartition, local: Segment, remote: RemoteSegment) -> SegmentCopy:
    """Return the copy of a sealed segment."""
    paths = [(INDEX_SUFFIX, local.file.named(INDEX_SUFFIX)), (TIME_INDEX_SUFFIX, local.file.named(TIME_INDEX_SUFFIX))]
    if remote.has_aborted:
        paths.append((TXN_INDEX_SUFFIX, local.file.named(TXN_INDEX_SUFFIX)))
    paths.append((SNAPSHOT_SUFFIX, f"{log.directory}/{remote.end + 1:020d}{SNAPSHOT_SUFFIX}"))
    view = local.file.view()[: local.file.size].toreadonly()
    return SegmentCopy(place, remote, view, log.files, paths, epochs_text(log.epochs.entries, remote.end + 1))


def epochs_between(epochs: Epochs, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the leader epochs of the offsets in [start, end), the first one from `start` on. An epoch without records is left out."""
    for index, (epoch, first) in enumerate(epochs):
        following = epochs[index + 1][1] if index + 1 < len(epochs) else end
        if max(first, start) < min(following, end):
            yield epoch, max(first, start)


def epochs_text(epochs: Epochs, end: int) -> bytes:
    """Return the file `leader-epoch-checkpoint` of the log up to `end`."""
    rows = [f"{epoch} {first}" for epoch, first in epochs if first < end]
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()
