"""Snapshots of the image: one is due by the bytes or the batches of log since the last one, or by its age (KIP-630).

Every node writes its own. The image is immutable, so a snapshot can be written in small steps between requests.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, Protocol

from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.work import Work
from ottla.server.clock import run_in_turns
from ottla.server.world import World
from ottla.storage.errors import DiskFull

log = logging.getLogger(__name__)

# metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot.interval.ms
BYTES_BETWEEN_SNAPSHOTS_MAX = 20 * 1024 * 1024
SNAPSHOT_INTERVAL_MS_MAX = 3_600_000
#: An idle quorum writes a batch of 70 bytes every half second, and a start reads every batch since the last snapshot: 1.2 million
#: in a week without one. So these count as well, whatever the two properties say: as many as come in 7 idle hours.
BATCHES_BETWEEN_SNAPSHOTS_MAX = 50_000
#: The pause after a snapshot for which the disk had no room.
AGAIN_MS = 60_000
# Encoding this many records takes some 2 ms, the longest time that a request waits for a snapshot.
RECORDS_PER_STEP = 500


class SnapshotWriter(Protocol):
    def append(self, records: list[bytes]) -> None: ...
    def freeze(self) -> Any: ...
    def abandon(self) -> None: ...


class SnapshotStore(Protocol):
    """The interface to the quorum's snapshots."""

    def create_snapshot(self, offset: int, epoch: int) -> SnapshotWriter | None:
        """Return a writer for the state below `offset`; None if the snapshot exists already."""

    def snapshot_created(self, offset: int, epoch: int) -> None:
        """Register the durable snapshot: older snapshots and the log before it may be deleted."""


class SnapshotGenerator:
    """Counts committed bytes and writes a snapshot of the image when it is due."""

    def __init__(
        self,
        world: World,
        store: SnapshotStore,
        *,
        bytes_max: int = BYTES_BETWEEN_SNAPSHOTS_MAX,
        interval_ms_max: int = SNAPSHOT_INTERVAL_MS_MAX,
    ) -> None:
        self._world = world
        self._store = store
        self._bytes_max = bytes_max
        self._interval_ms_max = interval_ms_max
        self._bytes = self._batches = 0
        self._last_ms = world.clock.mono_ms()
        self._running = False
        self._not_before_ms = self._last_ms

    def committed(self, batches: int, size: int) -> None:
        self._batches += batches
        self._bytes += size

    def write_if_due(self, image: MetadataImage) -> None:
        """Begin a snapshot of the image, if one is due. The image is of a whole delivery, and no metadata transaction is open.

        A cluster without metadata.version has no metadata yet: the transaction that brings its first records comes next. Kafka's
        controller cannot start from a snapshot that ends right before a BeginTransactionRecord (OffsetControlManager.replay).
        """
        if image.features.metadata_version == 0:
            return
        now_ms = self._world.clock.mono_ms()
        is_old = self._interval_ms_max > 0 and now_ms - self._last_ms >= self._interval_ms_max
        due = (
            self._bytes >= self._bytes_max
            or self._batches >= BATCHES_BETWEEN_SNAPSHOTS_MAX
            or (is_old and self._batches > 0)
        )
        if due and not self._running and now_ms >= self._not_before_ms:
            self._begin_count(now_ms)
            self._running = True
            self._world.spawn(self._write(image), "metadata-snapshot")

    def loaded_snapshot(self) -> None:
        """Restart the counts, because the image was loaded from a snapshot."""
        self._begin_count(self._world.clock.mono_ms())

    def _begin_count(self, now_ms: int) -> None:
        self._bytes, self._batches, self._last_ms = 0, 0, now_ms

    async def _write(self, image: MetadataImage) -> None:
        writer = None
        try:
            writer = self._store.create_snapshot(image.offset + 1, image.epoch)
            if writer is None:
                return
            await run_in_turns(self._world.clock, writing_snapshot(image, writer))
            await self._world.workers.run(writer.freeze)
            self._store.snapshot_created(image.offset + 1, image.epoch)
            log.info("Wrote a snapshot of the metadata up to offset %d", image.offset)
            writer = None
        except ValueError as error:
            # A new leader's log has replaced the log of the image, or does not reach that offset yet.
            log.info("No snapshot at offset %d: %s", image.offset, error)
        except DiskFull as shortage:
            self._not_before_ms = self._world.clock.mono_ms() + AGAIN_MS
            self._batches = BATCHES_BETWEEN_SNAPSHOTS_MAX  # it is due again then
            log.error("No snapshot of the metadata at offset %d: %s", image.offset, shortage)
        finally:
            self._running = False
            if writer is not None:
                writer.abandon()


def writing_snapshot(image: MetadataImage, writer: SnapshotWriter) -> Work[None]:
    records = image.to_records()
    while step := list(islice(records, RECORDS_PER_STEP)):
        writer.append(encode_metadata(step, image.features.metadata_version))
        yield None
