"""lz4 and zstd by the packages of that name: the results are those of cramjam, and the packages' own pitfalls are avoided."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, local
from typing import Any

import pytest
import zstandard
from lz4 import frame as lz4_frame

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import frames
from ottla.protocol.records.compression import LZ4, ZSTD, compress, decompress
from ottla.protocol.records.frames import _ZSTD_BLOCKS_MAX, _ZSTD_WINDOW_BYTES_MAX

MB = 1024 * 1024
TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(8000))
SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"
LIMITS = (len(TEXT) - 1, len(TEXT), 3 * len(TEXT))


def frame(data: bytes, *pieces: int, **parameters: Any) -> bytes:
    """Return a frame as a streaming compressor writes it. A block ends behind each of the first `pieces` bytes."""
    own = zstandard.ZstdCompressionParameters(write_content_size=0, **parameters)
    packer = zstandard.ZstdCompressor(compression_params=own).compressobj()
    packed, at = b"", 0
    for end in pieces:
        packed += packer.compress(data[at:end]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        at = end
    return packed + packer.compress(data[at:]) + packer.flush()


def claiming(size: int) -> bytes:
    """Return a frame of TEXT whose header has another size."""
    packed = bytearray(zstandard.compress(TEXT))
    assert packed[4] == 0xA0 and int.from_bytes(packed[5:9], "little") == len(TEXT)
    packed[5:9] = size.to_bytes(4, "little")
    return bytes(packed)


def zstd_inputs() -> dict[str, bytes]:
    known, unknown = zstandard.compress(TEXT), frame(TEXT)
    trained = zstandard.train_dictionary(4000, [b"line %d of a text" % i * 5 for i in range(2000)])
    return {
        "of known size": known,
        "of unknown size": unknown,
        "with a checksum": frame(TEXT, write_checksum=1),
        "with a wrong checksum": frame(TEXT, write_checksum=1)[:-1] + b"?",
        "of many blocks": frame(TEXT, *range(1000, len(TEXT), 1000)),
        "of blocks of one repeated byte": frame(bytes(len(TEXT)), 1000, 150_000),
        "of bytes that do not compress": frame(zstandard.compress(TEXT)),
        "two of known size": known + known,
        "two of unknown size": unknown + unknown,
        "of unknown size, then of known": unknown + known,
        "behind a skippable one": SKIPPABLE + unknown,
        "before a skippable one": unknown + SKIPPABLE,
        "only a skippable one": SKIPPABLE,
        "nothing": zstandard.compress(b""),
        "nothing, then something": zstandard.compress(b"") + known,
        "nothing of unknown size": frame(b""),
        "with bytes behind": unknown + b"behind",
        "with zeros behind": known + bytes(3),
        "with a dictionary": zstandard.ZstdCompressor(dict_data=trained).compress(TEXT),
        "with a window of 128 MB": frame(TEXT, window_log=27),
        "with a window of 256 MB": frame(TEXT, window_log=28),
        "that claims more than the limit": claiming(2**31),
        "that claims more than it has": claiming(len(TEXT) + 1),
        "that claims less than it has": claiming(len(TEXT) - 1),
        "that claims to be empty": claiming(0),
        "with a block of no kind": unknown[:6] + b"\x07\x00\x00",
        "not at all": b"no frame of any kind",
        **{f"cut to {size} bytes": unknown[:size] for size in (0, 1, 4, 5, 6, 8, 9, 500, len(unknown) - 1)},
    }


def lz4_inputs() -> dict[str, bytes]:
    small = compress(LZ4, TEXT[:5000])
    stored = compress(LZ4, zstandard.compress(TEXT))
    return {
        "of one block": small,
        "of one block that is stored": stored,
        "of a full block": compress(LZ4, TEXT[: 64 * 1024]),
        "of many blocks": compress(LZ4, TEXT),
        "with linked blocks": lz4_frame.compress(TEXT),
        "with a checksum": lz4_frame.compress(TEXT[:5000], block_linked=False, content_checksum=True),
        "with a size": lz4_frame.compress(TEXT[:5000], block_linked=False, store_size=True),
        "two": small + small,
        "nothing": compress(LZ4, b""),
        "with bytes behind": small + b"behind",
        "with zeros behind": small + bytes(4),
        "of a block that is damaged": small[:20] + b"\xff\xff\xff\xff" + small[24:],
        "of a block that is empty": small[:7] + b"\x01\x00\x00\x00" + b"\x00" + bytes(4),
        "of a stored block over 64 KB": small[:7] + b"\x01\x00\x01\x80" + bytes(65_537) + bytes(4),
        "of a block that holds over 64 KB": small[:7]
        + b"\x12\x01\x00\x00"
        + b"\x1f\x00\x01\x00"
        + b"\xff" * 270
        + bytes(4),
        **{f"cut to {size} bytes": small[:size] for size in (0, 1, 7, 8, 11, 12, 15, len(small) - 4, len(small) - 1)},
    }


ZSTD_INPUTS, LZ4_INPUTS = zstd_inputs(), lz4_inputs()


@contextmanager
def without_packages() -> Iterator[None]:
    """The codecs find neither package, as on platforms without wheels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_lz4_blocks", None)
        patch.setattr(frames, "_of_thread", local())
        for name in ("zstandard", "lz4", "lz4.block"):
            patch.setitem(sys.modules, name, None)
        yield


def outcome(codec: int, data: bytes, limit: int) -> object:
    try:
        return decompress(codec, data, limit)
    except KafkaError as refusal:
        return refusal.code


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", ZSTD_INPUTS)
def test_a_zstd_frame_means_the_same_with_and_without_the_package(name: str, limit: int) -> None:
    ours = outcome(ZSTD, ZSTD_INPUTS[name], limit)
    with without_packages():
        theirs = outcome(ZSTD, ZSTD_INPUTS[name], limit)
    if theirs is ErrorCode.CORRUPT_MESSAGE and ours is ErrorCode.INVALID_RECORD:
        # A size above the limit is rejected before it is known to be wrong, and before anything else is checked.
        assert zstandard.frame_content_size(ZSTD_INPUTS[name]) > limit
    else:
        assert ours == theirs


@pytest.mark.parametrize("limit", [4999, 5000, *LIMITS])
@pytest.mark.parametrize("name", LZ4_INPUTS)
def test_an_lz4_frame_means_the_same_with_and_without_the_package(name: str, limit: int) -> None:
    ours = outcome(LZ4, LZ4_INPUTS[name], limit)
    with without_packages():
        assert outcome(LZ4, LZ4_INPUTS[name], limit) == ours


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_what_either_writes_both_read(codec: int) -> None:
    for size in (0, 1, 1000, 64 * 1024, len(TEXT)):
        ours = compress(codec, TEXT[:size])
        with without_packages():
            theirs = compress(codec, TEXT[:size])
            assert decompress(codec, ours) == TEXT[:size]
        assert decompress(codec, theirs) == TEXT[:size]


def test_no_frame_is_dropped_though_the_package_returns_the_first() -> None:
    two = frame(TEXT) + frame(b"second")
    dropped = zstandard.ZstdDecompressor().decompress(two, max_output_size=MB, allow_extra_data=False)
    assert dropped == TEXT, "zstandard has learnt to refuse it: the walk over the blocks may be shorter"
    assert decompress(ZSTD, two) == TEXT + b"second"


def test_a_claimed_size_is_not_allocated() -> None:
    packed = claiming(200 * MB)
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError):
            decompress(ZSTD, packed)
        assert tracemalloc.get_traced_memory()[1] < 4 * MB
    finally:
        tracemalloc.stop()


class Spy:
    """Counts what the package is asked to decompress."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        package = frames._zstandard()
        assert package is not None
        self._inner = package.unpacker
        patch.setattr(frames._of_thread, "package", package._replace(unpacker=self))

    def decompress(self, *arguments: Any) -> bytes:
        self.asked += 1
        return bytes(self._inner.decompress(*arguments))


@pytest.mark.parametrize(
    "kind, packed, asked",
    [
        ("usual", frame(TEXT), 1),
        ("window that may be kept", frame(TEXT, window_log=_ZSTD_WINDOW_BYTES_MAX.bit_length() - 1), 1),
        ("window that may not", frame(TEXT, window_log=_ZSTD_WINDOW_BYTES_MAX.bit_length()), 0),
        ("blocks that may be counted", frame(TEXT, *range(300, 300 * _ZSTD_BLOCKS_MAX, 300)), 1),
        ("one block more", frame(TEXT, *range(300, 300 * _ZSTD_BLOCKS_MAX + 1, 300)), 0),
    ],
)
def test_what_the_package_is_given(kind: str, packed: bytes, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    assert decompress(ZSTD, packed) == TEXT
    assert spy.asked == asked, kind


def test_each_thread_has_its_own_objects() -> None:
    together = Barrier(4)

    def work(number: int) -> tuple[object, object]:
        data = TEXT[: 1000 + 60_000 * number]
        together.wait(30)
        for _ in range(20):
            assert decompress(ZSTD, compress(ZSTD, data)) == data
        package = frames._zstandard()
        assert package is not None
        return package.packer, package.unpacker

    with ThreadPoolExecutor(4) as pool:
        pairs = list(pool.map(work, range(4)))
    assert len({each for pair in pairs for each in pair}) == 8


def test_no_package_is_loaded_before_a_batch_needs_it() -> None:
    code = (
        "import sys; from ottla.protocol.records.compression import compress; compress(2, b'x')\n"
        "print({'zstandard', 'lz4'} & set(sys.modules)); compress(3, b'x'); compress(4, b'x')\n"
        "print(sorted({'zstandard', 'lz4'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["set()", "['lz4', 'zstandard']"]
