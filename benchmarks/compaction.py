"""`python -m benchmarks.compaction [keys] [records a batch] [bytes a value]`: one pass of the log cleaner as the broker drives it.

Prints the CPU seconds of the worker process, the longest step on the loop's side, and the memory of the process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time

from ottla.protocol.records.builder import build_batch
from ottla.protocol.work import DiskJob
from ottla.server.workers import ThreadWorkers
from ottla.storage.cleaner.cleaner import Advance, Begin, clean, plan_for
from ottla.storage.cleaner.cleaner_pass import CleaningPass, PassProgress
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig

NOW_MS = 1_700_000_000_000


def filled(directory: str, keys: int, per_batch: int, value_bytes: int) -> Log:
    """Return a log that has every key once, then each tenth key again."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=256 << 20)
    log = open_log(LogSpec(OsFiles(), Mappings(), directory, "topic", 0, bytes(16), config, now_ms=NOW_MS), clean=False)
    value = os.urandom(value_bytes)
    for numbers in (range(keys), range(0, keys, 10)):
        for start in range(0, len(numbers), per_batch):
            rows = [(b"key-%010d" % number, value, NOW_MS) for number in numbers[start : start + per_batch]]
            log.append(build_batch(rows), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.append(build_batch([(b"active", b"", NOW_MS)]), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.flush(NOW_MS)
    return log


async def one_pass(log: Log, records: int) -> None:
    threads = ThreadWorkers(asyncio.get_running_loop())
    worker = threads.process()
    await worker.make(int)
    steps, answer, longest, pieces = clean(log, plan_for(log, 0, NOW_MS), NOW_MS), None, 0.0, 0
    began, before = time.perf_counter(), log.segments.size
    while True:
        step_began = time.perf_counter()
        try:
            step = steps.send(answer)
        except StopIteration as end:
            clean_until = end.value
            break
        finally:
            longest = max(longest, time.perf_counter() - step_began)
        answer = None
        match step:
            case Begin(job):
                await worker.make(CleaningPass, OsFiles(), job)
            case Advance(first_base):
                answer = await worker.call("advance", first_base)
                assert isinstance(answer, PassProgress)
                pieces += 1
            case DiskJob(_, function):
                await threads.run(function)
    seconds = time.perf_counter() - began
    cpu = sum(map(int, read(f"/proc/{worker.pid}/stat").rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    memory = [line.split() for line in read(f"/proc/{worker.pid}/status").splitlines() if line.startswith("RssAnon")]
    print(f"{records:,} records, {before >> 20} MiB -> {log.segments.size >> 20} MiB, clean until {clean_until:,}")
    print(f"{seconds:.1f} s, worker {cpu:.2f} CPU s: {records / cpu:,.0f} records/s of a core in {pieces} pieces")
    print(
        f"longest step on the loop {longest * 1000:.2f} ms; worker's own memory {int(memory[0][1]) >> 10} MiB at the end"
    )
    await worker.close()
    threads.close()


def read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def main() -> None:
    keys, per_batch, value_bytes = (int(a) for a in (*sys.argv[1:], *("500000", "100", "160")[len(sys.argv) - 1 :]))
    directory = tempfile.mkdtemp()
    try:
        log = filled(directory, keys, per_batch, value_bytes)
        asyncio.run(one_pass(log, log.log_end_offset - 1))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
