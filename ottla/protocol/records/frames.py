"""The frames of lz4 and zstd, each by the package of that name, and by cramjam where that is missing or would not keep to the bounds.

lz4 in Kafka's frame: independent blocks of 64 KB, no checksums. Java rejects linked blocks, which are read here but never written.
The framing is ours, because the package lz4 writes linked blocks by default, and bounds its output by twice the memory. Its blocks
are taken where it is installed (the extra `lz4`: it has no wheels for Alpine and armv7), else those of cramjam.

The package zstandard (which has no wheel for armv7) reads 2 to 4 times as fast as cramjam, because it keeps its working memory. But
it has no limit on the output: it allocates what a frame claims, and of several frames it returns the first and drops the
others. So it gets only data that was checked before: one whole frame whose blocks say how much they can hold. Everything else
goes to cramjam, which stops at the limit: several frames (they may be joined), skippable ones, frames that end early, and
windows over 8 MB. Those over 128 MB (2^27, zstd's own default limit, also Java's) are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from struct import Struct
from threading import local
from typing import Any, NamedTuple

import cramjam

from ottla.protocol.primitives import Buffer

# The initial size of a growing output buffer: a typical batch fits without growing.
_GROWTH_START_BYTES = 64 * 1024
_GROWTH_FACTOR = 4


class OverLimitError(Exception):
    """The output is larger than the caller allows."""


def grow(decompress_into: Callable[[memoryview, memoryview], int], data: memoryview, max_bytes: int) -> bytes:
    """Decompress into a buffer of growing size. Starting over costs at most a third more and bounds memory exactly.

    The memory of a BytesIO is neither zeroed byte by byte nor copied at the end. For 256 MiB, each of these would hold
    the GIL, and with it block the event loop, for 100 ms. OverLimitError if `max_bytes` are not enough, ValueError if
    the data are damaged.
    """
    size = min(max(_GROWTH_START_BYTES, _GROWTH_FACTOR * len(data)), max_bytes)
    while True:
        output = BytesIO(bytes(size))
        try:
            with output.getbuffer() as room:
                written = decompress_into(data, room)
        except cramjam.DecompressionError as fault:
            if "whole buffer" not in str(fault):
                raise ValueError(str(fault)) from None
            if size == max_bytes:
                raise OverLimitError from None
            size = min(_GROWTH_FACTOR * size, max_bytes)
        else:
            output.truncate(written)
            return output.getvalue()


#: Kafka's default "level" means lz4's fast compressor; every other level its high compressor.
LZ4_FAST_LEVEL = 9

# Magic, FLG 0x60 (version 1, independent blocks, nothing else), BD 0x40 (64 KB blocks), second byte of their xxh32.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_UNCOMPRESSED_BIT = 0x8000_0000
_END_MARK = bytes(4)
_FLG_AT = 4
_INDEPENDENT_BIT = 0x20
_UINT32_LE = Struct("<I")
_LZ4_BLOCK_AT = len(_LZ4_HEADER) + _UINT32_LE.size


class _Lz4Blocks(NamedTuple):
    """One block at a time: `pack(data, level)`; `unpack(block)` gives at most 64 KB and raises ValueError for a damaged one."""

    pack: Callable[[memoryview, int], bytes]
    unpack: Callable[[memoryview], bytes]


def compress_lz4(data: Buffer, level: int) -> bytes:
    pack = _lz4().pack
    parts = [_LZ4_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = pack(plain, level)
        if len(block) < len(plain):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(plain) | _UNCOMPRESSED_BIT), bytes(plain))
    parts.append(_END_MARK)
    return b"".join(parts)


def decompress_lz4(data: memoryview, max_bytes: int) -> bytes:
    """Raise OverLimitError for more than `max_bytes`, ValueError for damaged bytes.

    Java, librdkafka and `compress_lz4` write the same header. With one block behind it, as most batches have, its output is
    known to be small; with more, one call for the whole frame is better, because between two a thread waits for the GIL.
    """
    if data[: len(_LZ4_HEADER)] != _LZ4_HEADER or data[-len(_END_MARK) :] != _END_MARK or len(data) <= _LZ4_BLOCK_AT:
        return grow(cramjam.lz4.decompress_into, data, max_bytes)
    block = data[_LZ4_BLOCK_AT : -len(_END_MARK)]
    (size,) = _UINT32_LE.unpack_from(data, len(_LZ4_HEADER))
    if size == len(block):
        output = _lz4().unpack(block)
    elif size == len(block) | _UNCOMPRESSED_BIT and len(block) <= _LZ4_BLOCK_BYTES:
        output = bytes(block)
    else:
        return grow(cramjam.lz4.decompress_into, data, max_bytes)
    if len(output) > max_bytes:
        raise OverLimitError
    return output


def blocks_are_linked(payload: memoryview) -> bool:
    """Return True if the lz4 frame's blocks are linked, and also if the payload is no lz4 frame."""
    return len(payload) < _FLG_AT + 1 or not payload[_FLG_AT] & _INDEPENDENT_BIT


_lz4_blocks: _Lz4Blocks | None = None


def _lz4() -> _Lz4Blocks:
    """Load the package when the first lz4 batch is read or written: most commands never see one."""
    global _lz4_blocks
    if _lz4_blocks is None:
        try:
            _lz4_blocks = _of_lz4()
        except ImportError:
            _lz4_blocks = _of_cramjam()
    return _lz4_blocks


def _of_lz4() -> _Lz4Blocks:
    from lz4 import block

    pack, unpack, error = block.compress, block.decompress, block.LZ4BlockError

    def packed(plain: memoryview, level: int) -> bytes:
        if level == LZ4_FAST_LEVEL:
            return bytes(pack(plain, store_size=False))
        return bytes(pack(plain, "high_compression", compression=level, store_size=False))

    def unpacked(data: memoryview) -> bytes:
        try:
            return bytes(unpack(data, _LZ4_BLOCK_BYTES))
        except error as fault:
            raise ValueError(str(fault)) from None

    return _Lz4Blocks(packed, unpacked)


def _of_cramjam() -> _Lz4Blocks:
    def packed(plain: memoryview, level: int) -> bytes:
        if level == LZ4_FAST_LEVEL:
            return bytes(cramjam.lz4.compress_block(plain, store_size=False))
        return bytes(cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False))

    def unpacked(data: memoryview) -> bytes:
        output = BytesIO(bytes(_LZ4_BLOCK_BYTES))
        try:
            with output.getbuffer() as room:
                written = cramjam.lz4.decompress_block_into(data, room)
        except cramjam.DecompressionError as fault:
            raise ValueError(str(fault)) from None
        output.truncate(written)
        return output.getvalue()

    return _Lz4Blocks(packed, unpacked)


#: The level of a topic that sets none, here and in Kafka.
ZSTD_DEFAULT_LEVEL = 3

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_DESCRIPTOR_AT = 4
_CHECKSUM_BIT, _CHECKSUM_BYTES = 4, 4
_BLOCK_HEADER_BYTES = 3
_LAST_BLOCK_BIT, _BLOCK_KIND_BITS, _REPEATED_BYTE, _BLOCK_SIZE_SHIFT = 1, 6, 2, 3
_ZSTD_BLOCK_BYTES = 128 * 1024
# Blocks of a hostile client have three bytes each: data with more blocks than a batch of 128 MB is left to cramjam.
_ZSTD_BLOCKS_MAX = 1024
# A thread's decompressor keeps memory for the largest window that it met. Up to level 19 windows have 8 MB, those of level 3 two.
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024


class _Zstandard(NamedTuple):
    """The objects of zstandard that a thread uses. They must not be used by two threads at a time."""

    zstandard: Any
    packer: Any  # it compresses with ZSTD_DEFAULT_LEVEL
    unpacker: Any


_of_thread = local()


def compress_zstd(data: Buffer, level: int) -> bytes:
    package = _zstandard()
    if package is None:
        return bytes(cramjam.zstd.compress(data, level=level))
    if level == ZSTD_DEFAULT_LEVEL:
        return bytes(package.packer.compress(data))
    # No compressor is kept for it: that of level 22 takes up to 700 MB.
    return bytes(package.zstandard.ZstdCompressor(level=level).compress(data))


def decompress_zstd(data: memoryview, max_bytes: int) -> bytes:
    """Raise OverLimitError for more than `max_bytes`, ValueError for damaged bytes."""
    package = _zstandard()
    if package is not None and data[: len(_ZSTD_MAGIC)] == _ZSTD_MAGIC:
        try:
            output = _one_frame(package, data, max_bytes)
        except package.zstandard.ZstdError as fault:
            raise ValueError(str(fault)) from None
        if output is not None:
            return output
    return grow(cramjam.zstd.decompress_into, data, max_bytes)


def _one_frame(package: _Zstandard, data: memoryview, max_bytes: int) -> bytes | None:
    """Return the contents of the frame, or None if cramjam has to decompress it. Raises OverLimitError, and ZstdError for a
    damaged frame.
    """
    zstandard = package.zstandard
    frame = zstandard.get_frame_parameters(data)
    is_known = frame.content_size != zstandard.CONTENTSIZE_UNKNOWN
    if is_known and frame.content_size > max_bytes:
        raise OverLimitError
    blocks = _blocks_of_whole_frame(data, zstandard.frame_header_size(data))
    # zstandard returns b"" for each frame that claims to be empty.
    if not blocks or not frame.content_size or frame.window_size > _ZSTD_WINDOW_BYTES_MAX:
        return None
    room = blocks * _ZSTD_BLOCK_BYTES
    if is_known:
        if frame.content_size > room:
            raise ValueError(f"claims {frame.content_size} bytes in {blocks} blocks")
        return bytes(package.unpacker.decompress(data))
    try:
        return bytes(package.unpacker.decompress(data, min(room, max_bytes)))
    except zstandard.ZstdError as fault:
        # The whole frame was there, so the output buffer was too small.
        if max_bytes < room and "full frame" in str(fault):
            raise OverLimitError from None
        raise


def _blocks_of_whole_frame(data: memoryview, at: int) -> int:
    """Return how many blocks the frame has if it ends where the data end, else 0. The first begins at `at`."""
    for blocks in range(1, _ZSTD_BLOCKS_MAX + 1):
        header = int.from_bytes(data[at : at + _BLOCK_HEADER_BYTES], "little")
        is_one_byte = header & _BLOCK_KIND_BITS == _REPEATED_BYTE
        at += _BLOCK_HEADER_BYTES + (1 if is_one_byte else header >> _BLOCK_SIZE_SHIFT)
        if header & _LAST_BLOCK_BIT:
            end = at + (_CHECKSUM_BYTES if data[_DESCRIPTOR_AT] & _CHECKSUM_BIT else 0)
            return blocks if end == len(data) else 0
        if at >= len(data):
            break
    return 0


def _zstandard() -> _Zstandard | None:
    """Load zstandard when a thread reads or writes its first zstd batch: most commands never do. None where it is missing."""
    try:
        found: _Zstandard | None = _of_thread.package
    except AttributeError:
        found = _of_thread.package = _load_zstandard()
    return found


def _load_zstandard() -> _Zstandard | None:
    try:
        import zstandard
    except ImportError:
        return None
    return _Zstandard(
        zstandard,
        zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL),
        zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX),
    )
