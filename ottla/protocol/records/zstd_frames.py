"""zstd by the package zstandard, and by cramjam where that has no wheel (armv7) or would not keep to the bounds.

zstandard reads 2 to 4 times as fast, because it keeps its working memory. But it has no limit on the output: it allocates
what a frame claims, and of several frames it returns the first and drops the others. So it gets what was looked through
before: one whole frame whose blocks say how much they can hold. All else is cramjam's, which stops at the limit: several
frames (they may be joined), skippable ones, frames that end early, and windows over 8 MB. Those over 128 MB (2^27, zstd's
own default limit, also Java's) are refused.
"""

from __future__ import annotations

from threading import local
from typing import Any, NamedTuple

import cramjam

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.growing import OverLimitError, grow

#: The level of a topic that sets none, here and in Kafka.
DEFAULT_LEVEL = 3

_MAGIC = b"\x28\xb5\x2f\xfd"
_DESCRIPTOR_AT = 4
_CHECKSUM_BIT, _CHECKSUM_BYTES = 4, 4
_BLOCK_HEADER_BYTES = 3
_LAST_BLOCK_BIT, _BLOCK_KIND_BITS, _REPEATED_BYTE, _BLOCK_SIZE_SHIFT = 1, 6, 2, 3
_BLOCK_BYTES = 128 * 1024
# Hostile ones have three bytes each: what has more than a batch of 128 MB is left to cramjam.
_BLOCKS_MAX = 1024
# A thread's decompressor keeps memory for the largest window that it met. Up to level 19 windows have 8 MB, those of level 3 two.
_WINDOW_BYTES_MAX = 8 * 1024 * 1024


class _Package(NamedTuple):
    """What a thread uses of zstandard, whose objects must not be used by two threads at a time."""

    zstandard: Any
    packer: Any  # of DEFAULT_LEVEL
    unpacker: Any


_of_thread = local()


def compress(data: Buffer, level: int) -> bytes:
    package = _package()
    if package is None:
        return bytes(cramjam.zstd.compress(data, level=level))
    if level == DEFAULT_LEVEL:
        return bytes(package.packer.compress(data))
    # No compressor is kept for it: that of level 22 takes up to 700 MB.
    return bytes(package.zstandard.ZstdCompressor(level=level).compress(data))


def decompress(data: memoryview, max_bytes: int) -> bytes:
    """Raises OverLimitError for more than `max_bytes`, ValueError for damaged bytes."""
    package = _package()
    if package is not None and data[: len(_MAGIC)] == _MAGIC:
        try:
            output = _one_frame(package, data, max_bytes)
        except package.zstandard.ZstdError as fault:
            raise ValueError(str(fault)) from None
        if output is not None:
            return output
    return grow(cramjam.zstd.decompress_into, data, max_bytes)


def _one_frame(package: _Package, data: memoryview, max_bytes: int) -> bytes | None:
    """Returns what the frame holds, None if cramjam has to find out. OverLimitError; ZstdError for a damaged frame."""
    zstandard = package.zstandard
    frame = zstandard.get_frame_parameters(data)
    is_known = frame.content_size != zstandard.CONTENTSIZE_UNKNOWN
    if is_known and frame.content_size > max_bytes:
        raise OverLimitError
    blocks = _blocks_of_whole_frame(data, zstandard.frame_header_size(data))
    # zstandard returns b"" for each frame that claims to be empty.
    if not blocks or not frame.content_size or frame.window_size > _WINDOW_BYTES_MAX:
        return None
    room = blocks * _BLOCK_BYTES
    if is_known:
        if frame.content_size > room:
            raise ValueError(f"claims {frame.content_size} bytes in {blocks} blocks")
        return bytes(package.unpacker.decompress(data))
    try:
        return bytes(package.unpacker.decompress(data, min(room, max_bytes)))
    except zstandard.ZstdError as fault:
        # All of the frame is there, so what was not enough is the room.
        if max_bytes < room and "full frame" in str(fault):
            raise OverLimitError from None
        raise


def _blocks_of_whole_frame(data: memoryview, at: int) -> int:
    """Returns how many blocks the frame has if it ends where the data end, else 0. The first begins at `at`."""
    for blocks in range(1, _BLOCKS_MAX + 1):
        header = int.from_bytes(data[at : at + _BLOCK_HEADER_BYTES], "little")
        is_one_byte = header & _BLOCK_KIND_BITS == _REPEATED_BYTE
        at += _BLOCK_HEADER_BYTES + (1 if is_one_byte else header >> _BLOCK_SIZE_SHIFT)
        if header & _LAST_BLOCK_BIT:
            end = at + (_CHECKSUM_BYTES if data[_DESCRIPTOR_AT] & _CHECKSUM_BIT else 0)
            return blocks if end == len(data) else 0
        if at >= len(data):
            break
    return 0


def _package() -> _Package | None:
    """Loads zstandard when a thread reads or writes its first zstd batch: most commands never do. None where it is missing."""
    try:
        found: _Package | None = _of_thread.package
    except AttributeError:
        found = _of_thread.package = _loaded()
    return found


def _loaded() -> _Package | None:
    try:
        import zstandard
    except ImportError:
        return None
    return _Package(
        zstandard,
        zstandard.ZstdCompressor(level=DEFAULT_LEVEL),
        zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX),
    )
