"""The codecs: round trips, the output of other implementations, hostile streams and decompression bombs."""

from __future__ import annotations

import gzip
import resource
import tracemalloc
import zlib
from types import SimpleNamespace

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame as lz4_frame

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import (
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    expanding,
)
from ottla.protocol.records.frames import blocks_are_linked
from ottla.protocol.work import BYTES_A_TURN, TooLong, Turn, do_at_once, do_now

MB = 1024 * 1024
TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(8000))
ALL = range(len(CODECS))
PACKED = range(1, len(CODECS))
ids = [codec.name for codec in CODECS]


@pytest.mark.parametrize("codec", ALL, ids=ids)
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 100))
def test_what_is_compressed_comes_back(codec: int, data: bytes, repeat: int) -> None:
    assert decompress(codec, compress(codec, data * repeat)) == data * repeat


@pytest.mark.parametrize("codec", ALL, ids=ids)
def test_the_limit_is_met_to_the_byte(codec: int) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(KafkaError) as caught:
        decompress(codec, packed, len(TEXT) - 1)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def bombs() -> dict[str, tuple[int, bytes]]:
    zeros = bytes(64 * MB)
    return {
        "gzip": (GZIP, gzip.compress(zeros)),
        "nested gzip members": (GZIP, gzip.compress(bytes(MB)) * 64),
        "snappy": (SNAPPY, compress(SNAPPY, zeros)),
        "raw snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy that only claims its length": (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc"),
        "lz4": (LZ4, compress(LZ4, zeros)),
        "lz4 of linked 4 MB blocks": (LZ4, lz4_frame.compress(zeros, block_size=lz4_frame.BLOCKSIZE_MAX4MB)),
        "zstd": (ZSTD, compress(ZSTD, zeros)),
        "zstd of many frames": (ZSTD, compress(ZSTD, bytes(MB)) * 64),
    }


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_without_its_memory(name: str) -> None:
    codec, packed = BOMBS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError) as caught:
            decompress(codec, packed, MB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert peak < 4 * MB
    # What the codecs allocate outside Python counts too; ru_maxrss is in KB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 24 * 1024


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_corrupt() -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(SNAPPY, b"\xff\xff\xff\x7f" + b"abc", 2**31)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_zstd_window_of_two_gigabytes_is_refused() -> None:
    huge = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=1, write_content_size=0)
    ).compressobj()
    packed = huge.compress(TEXT) + huge.flush()
    with pytest.raises(KafkaError) as caught:
        decompress(ZSTD, packed)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED, ids=ids[1:])
def test_a_stream_that_ends_early_is_corrupt(codec: int) -> None:
    packed = compress(codec, TEXT)
    for length in (1, 7, 19, len(packed) // 2, len(packed) - 1):
        with pytest.raises(KafkaError) as caught:
            decompress(codec, packed[:length])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", PACKED, ids=ids[1:])
@given(data=st.data())
def test_any_bytes_give_data_or_a_typed_error(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:500]))
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=4)):
        packed[at] = data.draw(st.integers(0, 255))
    packed += data.draw(st.binary(max_size=10))
    try:
        assert len(decompress(codec, packed, MB)) <= MB
    except KafkaError as fault:
        assert fault.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_empty_input_is_corrupt_except_where_it_is_nothing() -> None:
    assert decompress(0, b"") == b""
    for codec in (GZIP, SNAPPY, LZ4):
        with pytest.raises(KafkaError):
            decompress(codec, b"")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_an_invalid_record(codec: int) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, b"data")
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_our_lz4_blocks_are_independent_and_those_of_the_python_packages_are_not() -> None:
    assert not blocks_are_linked(memoryview(compress(LZ4, TEXT)))
    linked = lz4_frame.compress(TEXT)
    assert blocks_are_linked(memoryview(linked))
    assert decompress(LZ4, linked) == TEXT
    assert lz4_frame.decompress(compress(LZ4, TEXT)) == TEXT


def test_bytes_behind_a_gzip_member_are_ignored_as_in_java() -> None:
    assert decompress(GZIP, compress(GZIP, b"data") + b"xyz") == b"data"


def test_a_million_bytes_of_empty_gzip_members_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._inner = zlib.decompressobj(wbits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal copied
            part = self._inner.decompress(data, max_length)
            copied += len(self._inner.unused_data) + len(self._inner.unconsumed_tail)
            return part

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(
        "ottla.protocol.records.compression.zlib", SimpleNamespace(decompressobj=Counting, error=zlib.error)
    )
    members = gzip.compress(b"") * 5_000
    assert decompress(GZIP, members) == b""
    assert copied < 30 * len(members), "what follows a member is copied for each of them"


def test_members_of_every_size_are_joined() -> None:
    parts = [TEXT[:size] for size in (0, 1, 400, 5_000, 100_000, 0, 3)]
    assert decompress(GZIP, b"".join(map(gzip.compress, parts)) + b"behind") == b"".join(parts)


@pytest.mark.parametrize("codec", PACKED, ids=[codec.name for codec in CODECS[1:]])
def test_no_caller_may_ask_for_more_than_the_limit_of_all(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.protocol.records.compression.DECOMPRESSED_BYTES_MAX", MB)
    packed = compress(codec, bytes(MB + 1))
    with pytest.raises(KafkaError, match=f"over {MB} bytes"):
        decompress(codec, packed, 2**31 - 9)
    assert decompress(codec, compress(codec, bytes(MB)), 2**31 - 9) == bytes(MB)


@pytest.mark.parametrize("codec", PACKED, ids=[codec.name for codec in CODECS[1:]])
def test_an_error_does_not_keep_what_was_made_before_it(codec: int) -> None:
    packed = compress(codec, bytes(8 * MB))
    for data, limit in ((packed, 4 * MB), (packed[:-20] + b"\xff" * 20, 16 * MB)):
        tracemalloc.start()
        try:
            with pytest.raises(KafkaError) as caught:
                decompress(codec, data, limit)
            assert tracemalloc.get_traced_memory()[0] < MB and caught.value
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("codec", PACKED, ids=[codec.name for codec in CODECS[1:]])
def test_what_is_too_much_for_a_turn_is_left_to_a_thread(codec: int) -> None:
    small, large = compress(codec, TEXT[:1000]), compress(codec, bytes(BYTES_A_TURN + 1))
    assert do_at_once(expanding(codec, memoryview(small), Turn())) == TEXT[:1000]
    with pytest.raises(TooLong):
        do_at_once(expanding(codec, memoryview(large), Turn()))
    work = expanding(codec, memoryview(large), Turn())
    asked = next(work)
    assert asked is not None
    with pytest.raises(StopIteration) as end:
        work.send(asked())
    assert end.value.value == bytes(BYTES_A_TURN + 1)
    with pytest.raises(KafkaError):
        do_now(expanding(codec, memoryview(large), Turn(), 1000))


def test_joined_xerial_streams_are_one() -> None:
    assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two")) == b"one two"


@pytest.mark.parametrize("codec", PACKED, ids=ids[1:])
def test_levels_keep_the_data(codec: int) -> None:
    entry = CODECS[codec]
    for level in {entry.level_min, entry.level_default, min(entry.level_max, 15)}:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT
