"""The five codecs of record batches as a table: compress, and decompress under a hard limit on the output.

The limit is enforced while the output is produced, not checked afterwards: gzip and raw deflate stop at it, snappy has
its length in front, lz4 and zstd write into a buffer that has or grows up to it. All codecs release the GIL while they work,
and the output is not copied, so that a worker thread can decompress a batch beside the event loop. The formats:

  snappy  xerial's framing (32 KB blocks) is written, as Java does; librdkafka sends one raw block, so both are read. By
          cramjam: python-snappy is a wrapper of it, whose decompression takes no limit
  lz4, zstd   frames.py
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

import cramjam

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.frames import (
    LZ4_FAST_LEVEL,
    ZSTD_DEFAULT_LEVEL,
    OverLimitError,
    compress_lz4,
    compress_zstd,
    decompress_lz4,
    decompress_zstd,
)
from ottla.protocol.work import BYTES_A_TURN, Turn, Work

NO_COMPRESSION, GZIP, SNAPPY, LZ4, ZSTD = range(5)

# No batch may grow beyond this, whatever a topic's max.decompressed.message.bytes allows: Kafka's default for that is 2 GiB
# for each record, and a zstd batch of 80 KB can hold as much. Clients build batches of at most a few MB.
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024

_INT32 = Struct(">i")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable by version 1
_XERIAL_BLOCK_BYTES = 32 * 1024

_GZIP_WBITS = 31
_GZIP_MAGIC = b"\x1f\x8b"
# The first piece of a gzip member that is read; each next piece is twice as long. zlib copies the bytes after a member, so
# that without pieces a million tiny members would cost quadratic time.
_GZIP_PIECE_BYTES = 512
_GZIP_PIECE_BYTES_MAX = 1024 * 1024


# The exceptions of the codecs for bytes that they cannot have written.
_DAMAGED = (cramjam.DecompressionError, zlib.error, ValueError, IndexError)


class Codec(NamedTuple):
    """A compression codec, whose place in CODECS is its number: `compress(data, level)` with `level_min <= level <= level_max`;
    `decompress(data, max_bytes)`. Configurations, checks, tools and commands are made from it.

    OverLimitError for an output over `max_bytes`, one of `_DAMAGED` for bytes that are not this codec's.
    """

    name: str
    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[memoryview, int], bytes]
    #: The maximum number of bytes that one compressed byte can become.
    expansion_max: int
    level_default: int = 0
    level_min: int = 0
    level_max: int = 0
    #: The first version of Produce whose batches may have it.
    produce_since: int = 0
    #: The place in the order in which telemetry clients are to choose the codec (KIP-714), or 0 if it is not offered to them.
    telemetry_rank: int = 0
    #: The codec's batches are looked at outside of the check that most batches pass.
    needs_look: bool = False

    @property
    def has_levels(self) -> bool:
        return self.level_max != 0


class TooLarge(KafkaError):
    """The output is larger than the caller allows."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress with Kafka's default level when none is given."""
    entry = CODECS[codec]
    return entry.compress(data, entry.level_default if level is None else level)


def decompress(codec: int, data: Buffer, max_bytes: int | None = None) -> bytes:
    """Return the whole output, at most `max_bytes` and never more than DECOMPRESSED_BYTES_MAX.

    INVALID_RECORD for a larger one (`TooLarge`, as Kafka 4.4 for a record over max.decompressed.message.bytes) and for an
    unknown codec; CORRUPT_MESSAGE for bytes that are not of this codec.
    """
    if not NO_COMPRESSION <= codec < len(CODECS):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"unknown compression codec {codec}")
    limit = DECOMPRESSED_BYTES_MAX if max_bytes is None else min(max_bytes, DECOMPRESSED_BYTES_MAX)
    corrupt: str | None = None
    try:
        return CODECS[codec].decompress(memoryview(data), limit)
    except OverLimitError:
        pass
    except _DAMAGED as fault:
        corrupt = str(fault)
    # It is not raised above, because its context would keep the other error's frames with up to 256 MiB of decompressed data.
    name = CODECS[codec].name
    if corrupt is not None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"bad {name} data: {corrupt}")
    raise TooLarge(ErrorCode.INVALID_RECORD, f"{name} batch of {len(data)} bytes decompresses to over {limit} bytes")


def expanding(codec: int, data: memoryview, turn: Turn, max_bytes: int | None = None) -> Work[bytes]:
    """Decompress as `decompress` does; large outputs are produced on a worker. The buffer `data` may be invalid after a yield."""
    limit = DECOMPRESSED_BYTES_MAX if max_bytes is None else max_bytes
    if codec == NO_COMPRESSION:
        return decompress(codec, data, limit)  # only a copy
    if len(data) <= BYTES_A_TURN:
        try:
            output = decompress(codec, data, min(limit, BYTES_A_TURN))
        except KafkaError as fault:
            if limit <= BYTES_A_TURN or not isinstance(fault, TooLarge):
                # The work done before the error is unknown: data that is corrupt at its end costs as much as valid data.
                if turn.spend_bytes(BYTES_A_TURN):
                    yield None
                raise
        else:
            if turn.spend_bytes(len(output)):
                yield None
            return output
    return cast(bytes, (yield partial(decompress, codec, bytes(data), limit)))


def _stored(data: Buffer, _level: int) -> bytes:
    return bytes(data)


def _unstored(data: memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise OverLimitError
    return bytes(data)


def _gzip(data: Buffer, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
    return packer.compress(data) + packer.flush()


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    output = BytesIO()
    start = 0
    while True:  # one turn per gzip member; Java's reader accepts several too
        start = _gunzip_member(data, start, output, max_bytes)
        # Java's reader ignores trailing bytes that are no gzip member, so Kafka accepts such batches.
        if data[start : start + 2] != _GZIP_MAGIC:
            return output.getvalue()


def _gunzip_member(data: memoryview, start: int, output: BytesIO, max_bytes: int) -> int:
    """Append the member that begins at `start` to the output. Return where it ends."""
    unpacker = zlib.decompressobj(_GZIP_WBITS)
    size = _GZIP_PIECE_BYTES
    piece: Buffer = data[start : start + size]
    start += len(piece)
    while piece:
        part = unpacker.decompress(piece, _GZIP_PIECE_BYTES_MAX)
        if output.tell() + len(part) > max_bytes:
            raise OverLimitError
        output.write(part)
        if unpacker.eof:
            return start - len(unpacker.unused_data)
        piece = unpacker.unconsumed_tail
        if not piece:
            size = min(2 * size, _GZIP_PIECE_BYTES_MAX)
            piece = data[start : start + size]
            start += len(piece)
    raise ValueError("ends in the middle")


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
    output = BytesIO()
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
        output.write(_unsnap_block(data[pos : pos + size], max_bytes - output.tell()))
        pos += size
    return output.getvalue()


def _unsnap_block(block: memoryview, max_bytes: int) -> bytes:
    length: int = cramjam.snappy.decompress_raw_len(block)
    if length > max_bytes:
        raise OverLimitError
    # A snappy element of at least two bytes gives at most 64: a larger claim cannot be true and must not be allocated.
    if length > 64 * len(block):
        raise ValueError(f"claims {length} bytes from {len(block)}")
    output = BytesIO(bytes(length))
    with output.getbuffer() as room:
        cramjam.snappy.decompress_raw_into(block, room)
    return output.getvalue()


CODECS = (
    Codec("none", _stored, _unstored, 1),
    # Deflate's limit is 1032:1.
    Codec("gzip", _gzip, _gunzip, 1032, level_default=-1, level_min=1, level_max=9, telemetry_rank=3),
    # An element of two bytes copies 64.
    Codec("snappy", _snap, _unsnap, 64, telemetry_rank=4),
    # Each length byte adds 255. Batches with linked blocks are rejected, so that the block mode is looked at.
    Codec(
        "lz4",
        compress_lz4,
        decompress_lz4,
        255,
        level_default=LZ4_FAST_LEVEL,
        level_min=1,
        level_max=17,
        telemetry_rank=2,
        needs_look=True,
    ),
    # A block of four bytes yields 128 KiB. Since KIP-110.
    Codec(
        "zstd",
        compress_zstd,
        decompress_zstd,
        32_768,
        level_default=ZSTD_DEFAULT_LEVEL,
        level_min=-131_072,
        level_max=22,
        produce_since=7,
        telemetry_rank=1,
    ),
)
CODEC_IDS = {codec.name: number for number, codec in enumerate(CODECS)}
if TYPE_CHECKING:
    CodecName: TypeAlias = str
else:
    #: The names as a type: a command's option is one of them, and its help lists them.
    CodecName = Literal[tuple(CODEC_IDS)]
EXPANSION_MAX = tuple(codec.expansion_max for codec in CODECS)
#: compression.type: the codec to store with, None to keep what the producer chose. In the order of Kafka's message.
TARGET_CODECS: dict[str, int | None] = {
    "uncompressed": NO_COMPRESSION,
    **{CODECS[number].name: number for number in range(len(CODECS) - 1, NO_COMPRESSION, -1)},
    "producer": None,
}
