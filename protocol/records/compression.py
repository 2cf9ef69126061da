"""The five codecs of record batches as a table: compress, and decompress under a hard limit on the output.

The limit is enforced while the output is produced, never by looking at the result: gzip and raw deflate stop at it,
snappy says its length first, lz4 and zstd write into a buffer that grows up to it. What readers must know:

  snappy  we write xerial's framing (32 KB blocks), as Java does; librdkafka sends one raw block, so both are read
  lz4     we write Kafka's frame: 64 KB independent blocks, no checksums. Java refuses linked blocks, which the Python
          lz4 packages write by default; we read them but never write them
  zstd    windows over 128 MB (2^27, zstd's own default limit, also Java's) are refused
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import cramjam

from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

# What a batch may grow to when the caller has no limit of its own. Clients build batches of at most a few MB
# (batch.size, max.request.size 1 MB); Kafka 4.4's max.decompressed.message.bytes has no practical bound by default.
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024

_INT32 = Struct(">i")
_UINT32_LE = Struct("<I")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable by version 1
_XERIAL_BLOCK_BYTES = 32 * 1024

# Magic, FLG 0x60 (version 1, independent blocks, nothing else), BD 0x40 (64 KB blocks), second byte of their xxh32.
_LZ4_FRAME_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_UNCOMPRESSED_BIT = 0x8000_0000
_LZ4_END_MARK = bytes(4)
_LZ4_FLG_AT = 4
_LZ4_INDEPENDENT_BIT = 0x20
# Kafka's default "level" means lz4's fast compressor; every other level its high compressor.
_LZ4_FAST_LEVEL = 9

_GZIP_WBITS = 31
_GZIP_MAGIC = b"\x1f\x8b"
# Where growing starts: enough for a typical batch in one step.
_GROWTH_START_BYTES = 64 * 1024
_GROWTH_FACTOR = 4


class Codec(NamedTuple):
    """`level_min <= level <= level_max`; `compress(data, level)`; `decompress(data, max_bytes)` raises _TooLarge or _Corrupt."""

    name: str
    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[memoryview, int], bytes]
    level_default: int = 0
    level_min: int = 0
    level_max: int = 0


class _TooLarge(Exception):
    pass


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress with Kafka's default level when none is given."""
    entry = CODECS[codec]
    return entry.compress(data, entry.level_default if level is None else level)


def decompress(codec: int, data: Buffer, max_bytes: int | None = None) -> bytes:
    """The whole output, at most `max_bytes`.

    INVALID_RECORD for a larger one (as Kafka 4.4 for a record over max.decompressed.message.bytes) and for an unknown
    codec; CORRUPT_MESSAGE for bytes that are not of this codec.
    """
    if not NONE <= codec < len(CODECS):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"unknown compression codec {codec}")
    limit = DECOMPRESSED_BYTES_MAX if max_bytes is None else max_bytes
    try:
        return CODECS[codec].decompress(memoryview(data), limit)
    except _TooLarge:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{CODECS[codec].name} batch of {len(data)} bytes decompresses to over {limit} bytes",
        ) from None
    except (cramjam.DecompressionError, zlib.error, ValueError, IndexError) as fault:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"bad {CODECS[codec].name} data: {fault}") from None


def _stored(data: Buffer, _level: int) -> bytes:
    return bytes(data)


def _unstored(data: memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _TooLarge
    return bytes(data)


def _gzip(data: Buffer, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
    return packer.compress(data) + packer.flush()


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    while True:  # one turn per gzip member; Java's reader accepts several too
        unpacker = zlib.decompressobj(_GZIP_WBITS)
        part = unpacker.decompress(data, room + 1)
        room -= len(part)
        if room < 0:
            raise _TooLarge
        if not unpacker.eof:
            raise ValueError("ends in the middle")
        parts.append(part)
        data = memoryview(unpacker.unused_data)
        # Java's reader ignores what follows a member and is no other, so Kafka takes such batches.
        if data[:2] != _GZIP_MAGIC:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _snap(data: Buffer, _level: int) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _unsnap(data: memoryview, max_bytes: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _unsnap_block(data, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    pos = len(_XERIAL_HEADER)
    while pos < len(data):
        if data[pos : pos + 8] == _XERIAL_MAGIC:  # streams may be joined
            pos += len(_XERIAL_HEADER)
            continue
        if pos + 4 > len(data):
            raise ValueError("block length is cut short")
        (size,) = _INT32.unpack_from(data, pos)
        pos += 4
        if size < 0 or size > len(data) - pos:
            raise ValueError(f"block of {size} bytes where {len(data) - pos} are left")
        block = _unsnap_block(data[pos : pos + size], room)
        room -= len(block)
        parts.append(block)
        pos += size
    return b"".join(parts)


def _unsnap_block(block: memoryview, max_bytes: int) -> bytes:
    length: int = cramjam.snappy.decompress_raw_len(block)
    if length > max_bytes:
        raise _TooLarge
    # A snappy element of at least two bytes gives at most 64: a larger claim cannot be true and must not be allocated.
    if length > 64 * len(block):
        raise ValueError(f"claims {length} bytes from {len(block)}")
    return bytes(cramjam.snappy.decompress_raw(block, output_len=length))


def _lz4(data: Buffer, level: int) -> bytes:
    parts = [_LZ4_FRAME_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        if level == _LZ4_FAST_LEVEL:
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        else:
            block = bytes(
                cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False)
            )
        if len(block) < len(plain):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(plain) | _LZ4_UNCOMPRESSED_BIT), bytes(plain))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _unlz4(data: memoryview, max_bytes: int) -> bytes:
    return _grow(cramjam.lz4.decompress_into, data, max_bytes)


def lz4_blocks_are_linked(payload: memoryview) -> bool:
    """Whether an lz4 frame says that its blocks depend on each other; also true of what is no lz4 frame."""
    return len(payload) < _LZ4_FLG_AT + 1 or not payload[_LZ4_FLG_AT] & _LZ4_INDEPENDENT_BIT


def _zstd(data: Buffer, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


def _unzstd(data: memoryview, max_bytes: int) -> bytes:
    return _grow(cramjam.zstd.decompress_into, data, max_bytes)


def _grow(decompress_into: Callable[[memoryview, bytearray], int], data: memoryview, max_bytes: int) -> bytes:
    """Decompress into a buffer of growing size. Starting over costs at most a third more and bounds memory exactly."""
    size = min(max(_GROWTH_START_BYTES, _GROWTH_FACTOR * len(data)), max_bytes)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as fault:
            if "whole buffer" not in str(fault):
                raise
            if size == max_bytes:
                raise _TooLarge from None
            size = min(_GROWTH_FACTOR * size, max_bytes)
        else:
            del output[written:]
            return bytes(output)


CODECS = (
    Codec("none", _stored, _unstored),
    Codec("gzip", _gzip, _gunzip, level_default=-1, level_min=1, level_max=9),
    Codec("snappy", _snap, _unsnap),
    Codec("lz4", _lz4, _unlz4, level_default=_LZ4_FAST_LEVEL, level_min=1, level_max=17),
    Codec("zstd", _zstd, _unzstd, level_default=3, level_min=-131072, level_max=22),
)
CODEC_IDS = {codec.name: number for number, codec in enumerate(CODECS)}
