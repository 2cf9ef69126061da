"""The contents that a reply of the core reads from the disk: the records of a Fetch, a chunk of a FetchSnapshot."""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.raft.messages import FetchReply, FetchSnapshotReply, ReplyBody
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.protocol.errors import ErrorCode


def with_contents(body: ReplyBody, log: MetadataLog, chunk_bytes_max: int) -> tuple[ReplyBody, memoryview | None]:
    """Returns the body, with the chunk of the snapshot in it, and the records of a Fetch, which are not copied."""
    if isinstance(body, FetchReply) and body.records_from is not None:
        return body, log.read(body.records_from, body.bytes_max)
    if isinstance(body, FetchSnapshotReply) and body.error is ErrorCode.NONE:
        return _with_chunk(body, log, chunk_bytes_max), None
    return body, None


def _with_chunk(reply: FetchSnapshotReply, log: MetadataLog, chunk_bytes_max: int) -> FetchSnapshotReply:
    assert reply.snapshot is not None
    found = log.snapshot_chunk(reply.snapshot, reply.position, min(reply.bytes_max, chunk_bytes_max))
    if found is None:
        return replace(reply, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    size, data = found
    if reply.position >= size:
        return replace(reply, error=ErrorCode.POSITION_OUT_OF_RANGE)
    return replace(reply, size=size, data=data)
