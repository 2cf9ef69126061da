"""lz4 and zstd as the product has them, beside cramjam alone: `python -m benchmarks.codecs` prints the tables of benchmarks/performance-log.md.

Each figure is the best of many short slices, taken in turns, because longer ones are always disturbed on a machine with
other work. Hostile input is read in a process of its own, whose memory is that of this input.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import cramjam
import zstandard

from ottla.protocol.errors import KafkaError
from ottla.protocol.records import frames
from ottla.protocol.records.compression import CODEC_IDS, CODECS, DECOMPRESSED_BYTES_MAX, compress, decompress
from ottla.protocol.records.frames import OverLimitError, grow

SIZES = {"1 KB": 1 << 10, "16 KB": 16 << 10, "256 KB": 256 << 10, "1 MB": 1 << 20}
SLICES = 300
SLICE_US = 200
LZ4, ZSTD = CODEC_IDS["lz4"], CODEC_IDS["zstd"]
READERS = {LZ4: cramjam.lz4.decompress_into, ZSTD: cramjam.zstd.decompress_into}
CRAMJAM_BLOCKS = frames._of_cramjam()
BOMB_BYTES, LIMIT_BYTES = 512 << 20, 64 << 20
BOMBS = ("lz4", "zstd", "zstd of unknown size")


def events(size: int) -> bytes:
    """JSON as a web shop writes it: zstd makes a fifth of it."""
    chance = random.Random(5)
    rows = []
    for _ in range(size // 100 + 1):
        row = {
            "event_id": chance.getrandbits(64),
            "user": f"user-{chance.randrange(5000)}",
            "type": chance.choice(("view", "click", "buy")),
            "amount": round(chance.random() * 100, 2),
            "time": 1_700_000_000_000 + chance.randrange(10**7),
            "path": f"/shop/{chance.randrange(300)}/item",
        }
        rows.append(json.dumps(row))
    return "\n".join(rows).encode()[:size]


def streamed(data: bytes) -> bytes:
    """Return a zstd frame that does not state its size, as Java and librdkafka write it."""
    packer = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


def by_cramjam(codec: int, data: memoryview, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    return grow(READERS[codec], data, limit)


def lz4_by_cramjam(data: bytes) -> bytes:
    ours = frames._lz4_blocks
    frames._lz4_blocks = CRAMJAM_BLOCKS
    try:
        return compress(LZ4, data)
    finally:
        frames._lz4_blocks = ours


def best_us(*kinds: Callable[[], object]) -> list[float]:
    """Return the microseconds of CPU of one call of each."""
    best = [float("inf")] * len(kinds)
    for _ in range(SLICES):
        for number, call in enumerate(kinds):
            repeat = max(1, int(SLICE_US / best[number])) if best[number] < SLICE_US else 1
            began = time.thread_time_ns()
            for _ in range(repeat):
                call()
            best[number] = min(best[number], (time.thread_time_ns() - began) / repeat / 1000)
    return best


def rows() -> Iterator[list[str]]:
    works: dict[str, Callable[[bytes], tuple[Callable[[], object], Callable[[], object]]]] = {
        "lz4, compress": lambda data: (
            partial(lz4_by_cramjam, data),
            partial(compress, LZ4, data),
        ),
        "lz4, decompress": lambda data: both(LZ4, compress(LZ4, data)),
        "zstd, compress": lambda data: (
            lambda: bytes(cramjam.zstd.compress(data, level=3)),
            partial(compress, ZSTD, data),
        ),
        "zstd, decompress": lambda data: both(ZSTD, compress(ZSTD, data)),
        "the same of unknown size": lambda data: both(ZSTD, streamed(data)),
    }
    for name, work in works.items():
        pairs = [best_us(*work(events(size))) for size in SIZES.values()]
        yield [name, *("; ".join(shown(pair[kind]) for pair in pairs) for kind in (0, 1))]


def both(codec: int, packed: bytes) -> tuple[Callable[[], object], Callable[[], object]]:
    return partial(by_cramjam, codec, memoryview(packed)), partial(decompress, codec, packed)


def shown(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 20 else f"{microseconds:.0f}"


def bomb(name: str, kind: str) -> None:
    """Print the cost of one bomb for a process: the growth of its largest memory in MB, and milliseconds of CPU."""
    codec = LZ4 if name == "lz4" else ZSTD
    if name == "zstd of unknown size":
        packer = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
        parts = [packer.compress(bytes(1 << 20)) for _ in range(BOMB_BYTES >> 20)]
        packed = b"".join([*parts, packer.flush()])
    else:
        packed = CODECS[codec].compress(bytes(BOMB_BYTES), CODECS[codec].level_default)
    decompress(codec, compress(codec, b"loaded"))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak of the process's memory
    before, began = _peak_kb(), time.process_time()
    try:
        by_cramjam(codec, memoryview(packed), LIMIT_BYTES) if kind == "cramjam" else decompress(
            codec, packed, LIMIT_BYTES
        )
        raise SystemExit("it was not refused")
    except (OverLimitError, KafkaError):
        pass
    print((_peak_kb() - before) >> 10, round((time.process_time() - began) * 1000))


def _peak_kb() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def bombs() -> Iterator[list[str]]:
    for name in BOMBS:
        cells = []
        for kind in ("cramjam", "product"):
            command = [sys.executable, "-m", "benchmarks.codecs", "--bomb", name, "--kind", kind]
            memory, cpu = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            cells.append(f"{memory} MB; {cpu} ms")
        yield [name, *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bomb", choices=BOMBS, help="read this one only, in this process")
    parser.add_argument("--kind", choices=("cramjam", "product"), default="product")
    options = parser.parse_args()
    if options.bomb:
        bomb(options.bomb, options.kind)
        return
    show([f"microseconds of CPU: {'; '.join(SIZES)}", "cramjam alone", "the product"], rows())
    print()
    show(["512 MB of zeros, limited to 64 MB: memory; CPU", "cramjam alone", "the product"], bombs())


def show(head: list[str], lines: Iterator[list[str]]) -> None:
    for cells in (head, ["---"] * len(head)):
        print("|", " | ".join(cells), "|")
    for cells in lines:
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
