"""lz4 in Kafka's frame: independent blocks of 64 KB, no checksums. Java rejects linked blocks, which are read here but never written.

The framing is ours, because the package lz4 writes linked blocks by default, and bounds its output by twice the
memory. Its blocks are taken where it is installed (the extra `lz4`: it has no wheels for Alpine and armv7), else those of cramjam.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from struct import Struct
from typing import NamedTuple

import cramjam

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.growing import OverLimitError, grow

#: Kafka's default "level" means lz4's fast compressor; every other level its high compressor.
FAST_LEVEL = 9

# Magic, FLG 0x60 (version 1, independent blocks, nothing else), BD 0x40 (64 KB blocks), second byte of their xxh32.
_HEADER = bytes.fromhex("04224d18604082")
_BLOCK_BYTES = 64 * 1024
_UNCOMPRESSED_BIT = 0x8000_0000
_END_MARK = bytes(4)
_FLG_AT = 4
_INDEPENDENT_BIT = 0x20
_UINT32_LE = Struct("<I")
_BLOCK_AT = len(_HEADER) + _UINT32_LE.size


class _Blocks(NamedTuple):
    """One block at a time: `pack(data, level)`; `unpack(block)` gives at most 64 KB and raises ValueError for a damaged one."""

    pack: Callable[[memoryview, int], bytes]
    unpack: Callable[[memoryview], bytes]


def compress(data: Buffer, level: int) -> bytes:
    pack = _blocks().pack
    parts = [_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        plain = view[start : start + _BLOCK_BYTES]
        block = pack(plain, level)
        if len(block) < len(plain):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(plain) | _UNCOMPRESSED_BIT), bytes(plain))
    parts.append(_END_MARK)
    return b"".join(parts)


def decompress(data: memoryview, max_bytes: int) -> bytes:
    """Raises OverLimitError for more than `max_bytes`, ValueError for damaged bytes.

    Java, librdkafka and `compress` write the same header. With one block behind it, as most batches have, its output is
    known to be small; with more, one call for the whole frame is better, because between two a thread waits for the GIL.
    """
    if data[: len(_HEADER)] != _HEADER or data[-len(_END_MARK) :] != _END_MARK or len(data) <= _BLOCK_AT:
        return grow(cramjam.lz4.decompress_into, data, max_bytes)
    block = data[_BLOCK_AT : -len(_END_MARK)]
    (size,) = _UINT32_LE.unpack_from(data, len(_HEADER))
    if size == len(block):
        output = _blocks().unpack(block)
    elif size == len(block) | _UNCOMPRESSED_BIT and len(block) <= _BLOCK_BYTES:
        output = bytes(block)
    else:
        return grow(cramjam.lz4.decompress_into, data, max_bytes)
    if len(output) > max_bytes:
        raise OverLimitError
    return output


def blocks_are_linked(payload: memoryview) -> bool:
    """Returns True if the lz4 frame's blocks are linked, and also if the payload is no lz4 frame."""
    return len(payload) < _FLG_AT + 1 or not payload[_FLG_AT] & _INDEPENDENT_BIT


_loaded: _Blocks | None = None


def _blocks() -> _Blocks:
    """Loads the package when the first lz4 batch is read or written: most commands never see one."""
    global _loaded
    if _loaded is None:
        try:
            _loaded = _of_lz4()
        except ImportError:
            _loaded = _of_cramjam()
    return _loaded


def _of_lz4() -> _Blocks:
    from lz4 import block

    pack, unpack, error = block.compress, block.decompress, block.LZ4BlockError

    def packed(plain: memoryview, level: int) -> bytes:
        if level == FAST_LEVEL:
            return bytes(pack(plain, store_size=False))
        return bytes(pack(plain, "high_compression", compression=level, store_size=False))

    def unpacked(data: memoryview) -> bytes:
        try:
            return bytes(unpack(data, _BLOCK_BYTES))
        except error as fault:
            raise ValueError(str(fault)) from None

    return _Blocks(packed, unpacked)


def _of_cramjam() -> _Blocks:
    def packed(plain: memoryview, level: int) -> bytes:
        if level == FAST_LEVEL:
            return bytes(cramjam.lz4.compress_block(plain, store_size=False))
        return bytes(cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False))

    def unpacked(data: memoryview) -> bytes:
        output = BytesIO(bytes(_BLOCK_BYTES))
        try:
            with output.getbuffer() as room:
                written = cramjam.lz4.decompress_block_into(data, room)
        except cramjam.DecompressionError as fault:
            raise ValueError(str(fault)) from None
        output.truncate(written)
        return output.getvalue()

    return _Blocks(packed, unpacked)
