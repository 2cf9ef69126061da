"""A run over many targets: the share of executions or time of each, a fork for each, the findings, and the totals."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import corpus, engine, known
from tests.fuzz.judge import Finding, short_name
from tests.fuzz.target import Target

_EXECUTED = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


@dataclass
class Totals:
    executions: int = 0
    findings: dict[str, Path] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    died: list[str] = field(default_factory=list)


class Campaign:
    def __init__(
        self,
        targets: list[Target],
        folder: Path,
        *,
        seed: int,
        jobs: int,
        count: int | None,
        seconds: float | None,
        seeds_max: int | None,
    ) -> None:
        self.targets, self.folder, self.seed, self.jobs = targets, folder.absolute(), seed, max(1, jobs)
        self.count, self.seconds, self.seeds_max = count, seconds, seeds_max
        self.totals = Totals()

    def run(self, *, keep: bool) -> int:
        """Run all targets. Return 0 if nothing new was found."""
        amount = f"{self.count} executions" if self.count else f"{self.seconds:g} s"
        print(f"{len(self.targets)} targets, {amount}, seed {self.seed}, {self.jobs} processes", flush=True)
        began = time.monotonic()
        self._in_processes(self._start, self._finish)
        took = time.monotonic() - began
        if keep:
            for target in self.targets:
                reached = (self._place(target) / "corpus").iterdir()
                corpus.write(target.name, [path.read_bytes() for path in reached])
        return self._verdict(took)

    def _verdict(self, took: float) -> int:
        totals = self.totals
        print(
            f"{totals.executions} executions in {took:.0f} s ({totals.executions / took:.0f}/s); "
            f"{len(totals.findings)} new findings, {len(totals.known)} known ones"
        )
        for kind, path in totals.findings.items():
            print(f"{kind}\n    {path.read_text().rstrip()}".replace("\n", "\n    "))
            target = path.name.partition("-")[0]
            print(f"    replay: python -m tests.fuzz --target {target} --replay {path.with_suffix('.bin')}")
        for line in totals.died:
            print(line)
        return 1 if totals.findings or totals.died else 0

    def _in_processes(self, start: Callable[[Target], int], finish: Callable[[Target, int], None]) -> None:
        """Run one process for each target, at most `jobs` at a time."""
        waiting, running = list(reversed(self.targets)), dict[int, Target]()
        while waiting or running:
            while waiting and len(running) < self.jobs:
                target = waiting.pop()
                running[start(target)] = target
            process, status = os.wait()
            finish(running.pop(process), os.waitstatus_to_exitcode(status))

    # One target

    def _flags(self, target: Target) -> list[str]:
        flags = [f"-seed={self.seed}"]
        if self.count:
            shares = sum(each.share for each in self.targets)
            flags.append(f"-runs={max(1, self.count * target.share // shares)}")
        if self.seconds:
            seconds = self.seconds * min(self.jobs, len(self.targets)) / len(self.targets)
            flags.append(f"-max_total_time={max(1, round(seconds))}")
        return flags

    def _place(self, target: Target) -> Path:
        return self.folder / target.name

    def _start(self, target: Target) -> int:
        place = self._place(target)
        shutil.rmtree(place, ignore_errors=True)
        (place / "corpus").mkdir(parents=True)

        unmended = {each.data for each in known.known(target.name)}
        seeds = [*target.seeds(), *(kept.data for kept in corpus.read(target.name) if kept.data not in unmended)]
        if self.seeds_max is not None and len(seeds) > self.seeds_max:
            seeds = random.Random(self.seed).sample(seeds, self.seeds_max)
        inputs = [engine.write_inputs(place / "seeds", (seed[: target.bytes_max] for seed in seeds))]
        flags = self._flags(target)
        return engine.in_child(lambda: engine.fuzz(target, place, inputs, flags, _Recorder(place)), place / "log.txt")

    def _finish(self, target: Target, code: int) -> None:
        place = self._place(target)
        log = (place / "log.txt").read_text(errors="replace")
        executed = int(found[-1]) if (found := _EXECUTED.findall(log)) else 0
        self.totals.executions += executed
        new = 0
        for path in sorted(place.glob("*.json")):
            kind = json.loads(path.read_text())["kind"]
            name = f"{target.name}: {kind}"
            if known.reason(target.name, kind) is not None:
                self.totals.known.add(name)
            else:
                new += 1
                self.totals.findings[name] = path.with_suffix(".txt")
        if code or not executed:
            self.totals.died.append(f"{target.name}: the process ended with {code}; see {place / 'log.txt'}")
        corners = len(list((place / "corpus").iterdir()))
        print(
            f"{target.name:12} {executed:9} executions, {corners:5} inputs reached new code, {new} findings", flush=True
        )


class _Recorder:
    """Writes findings down as they come, because the process may die before its end. It keeps the smallest input of each
    kind.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._smallest: dict[str, int] = {}

    def __call__(self, finding: Finding) -> None:
        if self._smallest.get(finding.kind, 1 << 30) <= len(finding.data):
            return
        self._smallest[finding.kind] = len(finding.data)
        path = self._place / f"{finding.target}-{short_name(finding.kind.encode())}"
        path.with_suffix(".bin").write_bytes(finding.data)
        path.with_suffix(".txt").write_text(f"{finding.data.hex()}\n{finding.text}")
        path.with_suffix(".json").write_text(json.dumps({"kind": finding.kind}))
