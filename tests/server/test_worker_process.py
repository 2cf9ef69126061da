"""Worker processes: an object that is called from here. It shares only two pipes with the node, and ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.worker_process import _BOOT, OwnProcess, WorkerEnded, WorkFailed, _send
from ottla.server.workers import ThreadWorkers
from ottla.storage.errors import StorageFailure
from ottla.storage.files import OsFiles
from tests.broker.conftest import eventually

ROOT = Path(__file__).resolve().parents[2]


class Counter:
    """A value that a test keeps in a worker process."""

    def __init__(self, start: int) -> None:
        self.count = start

    def add(self, more: int) -> int:
        self.count += more
        print("a stray print is no answer")
        return self.count

    def pid(self) -> int:
        return os.getpid()

    def files(self) -> list[str]:
        """Return the files behind its descriptors."""
        names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return [os.readlink(name) for name in names if os.path.exists(name)]

    def fail(self, kind: str) -> None:
        match kind:
            case "kafka":
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad")
            case "storage":
                raise StorageFailure("/path", OSError(5, "broken"))
            case "memory":
                raise MemoryError
            case _:
                raise type("Odd", (Exception,), {})("not known outside")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def process() -> OwnProcess:
    return OwnProcess(ThreadWorkers(asyncio.get_running_loop(), threads=1).run)


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_an_object_in_another_process_is_called_until_it_is_closed() -> None:
    worker = process()
    assert worker.pid is None, "not before it is needed"
    await worker.make(Counter, 5)
    assert [await worker.call("add", 2), await worker.call("add", 3)] == [7, 10]
    pid = await worker.call("pid")
    assert pid != os.getpid()
    await worker.make(Counter, 0)
    assert (await worker.call("add", 1), await worker.call("pid")) == (1, pid)
    await worker.close()
    assert gone(pid)
    await worker.make(Counter, 1)
    assert await worker.call("pid") != pid
    await worker.close()


async def test_errors_keep_their_types() -> None:
    worker = process()
    await worker.make(Counter, 0)
    with pytest.raises(KafkaError) as corrupt:
        await worker.call("fail", "kafka")
    assert corrupt.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(StorageFailure, match=r"/path: .*broken"):
        await worker.call("fail", "storage")
    with pytest.raises(MemoryError):
        await worker.call("fail", "memory")
    with pytest.raises(WorkFailed, match="Odd: not known outside"):
        await worker.call("fail", "odd")
    assert await worker.call("add", 1) == 1
    await worker.close()


async def test_a_process_that_dies_is_an_error_and_another_one_takes_over_after_close() -> None:
    worker = process()
    await worker.make(Counter, 0)
    with pytest.raises(WorkerEnded):
        await worker.call("die")
    await worker.close()
    await worker.make(Counter, 3)
    assert await worker.call("add", 1) == 4
    await worker.close()


async def test_it_holds_no_lock_of_a_log_directory_and_no_descriptor_of_the_node(tmp_path: Path) -> None:
    lock = OsFiles().lock(str(tmp_path / ".lock"))
    worker = process()
    await worker.make(Counter, 0)
    names = await worker.call("files")
    assert not [name for name in names if str(tmp_path) in name or "socket" in name]
    lock.release()
    command = f"from ottla.storage.files import OsFiles; OsFiles().lock({str(tmp_path / '.lock')!r})"
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", command], cwd=ROOT)
    assert done.returncode == 0
    await worker.close()


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_when_the_node_is_killed(busy: bool) -> None:
    script = f"""
import asyncio, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from ottla.server.worker_process import OwnProcess
from ottla.server.workers import ThreadWorkers

async def main():
    worker = OwnProcess(ThreadWorkers(asyncio.get_running_loop(), threads=1).run)
    await worker.make(int)
    print(worker.pid, flush=True)
    await worker.make(eval, "__import__('time').sleep(60)") if {busy} else await asyncio.sleep(60)

asyncio.run(main())
"""
    node = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    pid = int(node.stdout.readline())
    assert not gone(pid)
    node.kill()
    node.wait()
    eventually(lambda: gone(pid), "the worker to end")


def test_it_writes_nothing_into_the_log_of_a_node_that_was_killed_before_its_answer() -> None:
    command = [sys.executable, "-P", "-c", _BOOT, *filter(None, sys.path)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert worker.stdin is not None and worker.stdout is not None and worker.stderr is not None
    worker.stdout.close()
    _send(worker.stdin, (int, ()))
    assert (worker.wait(60), worker.stderr.read()) == (0, b"")
    worker.stdin.close()
    worker.stderr.close()
