"""When to write a snapshot of the image, and writing it: by bytes of log since the last one, or by its age (KIP-630).

Every node writes its own. The image is frozen, so a snapshot of it can take its time in small steps between requests.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Any, Protocol

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import MetadataImage
from ottla.server.world import World

log = logging.getLogger(__name__)

# metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot.interval.ms
BYTES_BETWEEN_SNAPSHOTS_MAX = 20 * 1024 * 1024
SNAPSHOT_INTERVAL_MS_MAX = 3_600_000
# Encoding as many records takes some 2 ms: no request waits longer for a snapshot than that.
RECORDS_PER_STEP = 500


class SnapshotWriter(Protocol):
    def append(self, records: list[bytes]) -> None: ...
    def freeze(self) -> Any: ...
    def abandon(self) -> None: ...


class SnapshotStore(Protocol):
    """The quorum's side."""

    def create_snapshot(self, offset: int, epoch: int) -> SnapshotWriter | None:
        """A writer for the state below `offset`; None if there is such a snapshot already."""

    def snapshot_created(self, offset: int, epoch: int) -> None:
        """The writer's file is on the disk: older snapshots and the log before it may go."""


class SnapshotGenerator:
    """A publisher: counts what is committed and snapshots the image when it is due."""

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
        self._bytes = 0
        self._last_ms = world.clock.mono_ms()
        self._running = False

    def committed_bytes(self, count: int) -> None:
        self._bytes += count

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        now_ms = self._world.clock.mono_ms()
        due = self._bytes >= self._bytes_max or (
            self._interval_ms_max > 0 and self._bytes > 0 and now_ms - self._last_ms >= self._interval_ms_max
        )
        if due and not self._running:
            self._bytes, self._last_ms, self._running = 0, now_ms, True
            self._world.spawn(self._write(image), "metadata-snapshot")

    def loaded_snapshot(self) -> None:
        """The image came out of a snapshot: no need for another so soon."""
        self._bytes, self._last_ms = 0, self._world.clock.mono_ms()

    async def _write(self, image: MetadataImage) -> None:
        writer = None
        try:
            writer = self._store.create_snapshot(image.offset + 1, image.epoch)
            if writer is None:
                return
            await write_snapshot(image, writer)
            await self._world.workers.run(writer.freeze)
            self._store.snapshot_created(image.offset + 1, image.epoch)
            log.info("Wrote a snapshot of the metadata up to offset %d", image.offset)
            writer = None
        except ValueError as error:
            # Another leader's log has taken the place of what the image was made of, or has not got that far yet.
            log.info("No snapshot at offset %d: %s", image.offset, error)
        finally:
            self._running = False
            if writer is not None:
                writer.abandon()


async def write_snapshot(image: MetadataImage, writer: SnapshotWriter) -> None:
    records = image.to_records()
    while step := list(islice(records, RECORDS_PER_STEP)):
        writer.append(encode_metadata(step, image.features.metadata_version))
        await asyncio.sleep(0)
