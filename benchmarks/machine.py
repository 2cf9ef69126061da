"""The properties of a machine on which every figure depends: `python -m benchmarks.machine`. `make bench` prints it above its
tables.

The processor and the kernel's mitigations, the build of Python, the nanoseconds of a bytecode and the microseconds of a round trip
through the loopback. The first is the best of many, so that it is the machine's and not its load's; the second is a median.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.bytecodes import count
from benchmarks.raw import one_record_batch
from benchmarks.usage import machine
from ottla.node.python_build import python_build
from ottla.protocol.compile import decoder, encode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VULNERABILITIES = Path("/sys/devices/system/cpu/vulnerabilities")
VERSION = 12
SLICES, CALLS = 2_000, 10
ROUND_TRIPS, MESSAGE = 20_000, b"x" * 100


def mitigations(folder: Path = VULNERABILITIES) -> str:
    """Return the kernel's measures against the faults of the processor. A fault without a measure counts as vulnerable."""
    states = {file.name: file.read_text().strip() for file in sorted(folder.glob("*"))}
    active = [
        f"{name} ({state.partition(': ')[2]})" for name, state in states.items() if state.startswith("Mitigation")
    ]
    vulnerable = [name for name, state in states.items() if state.startswith("Vulnerable")]
    if not states:
        return "not known"
    return ", ".join(active or ["none"]) + (f"; vulnerable: {', '.join(vulnerable)}" if vulnerable else "")


def ns_per_bytecode() -> float:
    """Return the time of a bytecode in a request's decoder, with its calls of C."""
    data = [
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=one_record_batch(bytes(100)))])
    ]
    body = bytearray(encode(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), VERSION))
    decode = decoder(ProduceRequest, VERSION)

    def call() -> None:
        decode(body, 0, len(body))

    call()
    return _best_ns(call) / count(call).bytecodes.total()


def _best_ns(call: Callable[[], None]) -> float:
    best = float("inf")
    for _ in range(SLICES):
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter_ns() - began)
    return best / CALLS


def loopback_us() -> float:
    """Return the median of a message of 100 bytes to another process and back, both of which block: four system calls, two wake-ups."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if not child:
            with socket.create_connection(server.getsockname()) as echo:
                echo.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while data := echo.recv(len(MESSAGE)):
                    echo.sendall(data)
            os._exit(0)
        connection, _ = server.accept()
    taken = []
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter_ns()
            connection.sendall(MESSAGE)
            connection.recv(len(MESSAGE))
            taken.append(time.perf_counter_ns() - began)
    os.waitpid(child, 0)
    return sorted(taken)[ROUND_TRIPS // 2] / 1000


def conditions() -> list[str]:
    """Return the lines of markdown that belong above figures of this machine."""
    return [
        f"- processor: {machine()}, {os.cpu_count()} cores; kernel {platform.release()}",
        f"- mitigations: {mitigations()}",
        f"- {platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}, build: {python_build().value}",
        f"- {ns_per_bytecode():.1f} ns a bytecode, {loopback_us():.1f} us a round trip through the loopback",
    ]


if __name__ == "__main__":
    print("\n".join(conditions()))
