"""The resources that a server's processes use: CPU seconds so far, and private memory at the moment, from /proc."""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """Return the name of the processor."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "model name"), "an unknown processor")


def cpu_seconds(pids: list[int]) -> float:
    """Return the user and system seconds of these processes, with their threads and without their children."""
    ticks = 0
    for pid in pids:
        # The command name (field 2) may contain spaces; fields are counted after its closing parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


def tree_cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and of all its descendants, also of those that have ended and were waited for."""
    ticks, below = {}, defaultdict[int, list[int]](list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            fields = path.read_text().rpartition(")")[2].split()
            ticks[int(path.parent.name)] = sum(int(each) for each in fields[11:15])
            below[int(fields[1])].append(int(path.parent.name))
    found, todo = 0, [root]
    while todo:
        pid = todo.pop()
        found += ticks.get(pid, 0)
        todo += below[pid]
    return found / TICKS_PER_SECOND


def private_megabytes(pids: list[int]) -> float:
    """Return the memory that ends with these processes: private clean and dirty pages. Mapped log files count only for their
    dirty copies.
    """
    kilobytes = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


def anonymous_megabytes(pids: list[int]) -> float:
    """Return the heap and the stacks: the private memory without pages of files."""
    kilobytes = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


@dataclass(frozen=True)
class MachineTime:
    """The ticks of all processors since the boot, and the stolen ones."""

    stolen: int
    all: int

    @classmethod
    def now(cls) -> MachineTime:
        # user nice system idle iowait irq softirq steal; what guests take is in user and nice already
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return cls(fields[7], sum(fields))

    def stolen_percent(self) -> float:
        """Return the share of time since then that the hypervisor gave to other machines."""
        now = MachineTime.now()
        return 100 * (now.stolen - self.stolen) / max(1, now.all - self.all)


class ClientTime:
    """The CPU time of this process, with its threads and the children that have ended."""

    def __init__(self) -> None:
        self._begin, self._used = time.perf_counter(), _used_seconds()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    @property
    def cores(self) -> float:
        """Return the mean number of busy cores since then."""
        return (_used_seconds() - self._used) / self.seconds


def _used_seconds() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)
