"""Golden transcripts: each file is a script for a small quorum, and what its replicas then said and did.

    <command and arguments>
    ----
    <what happened, one line each: milliseconds, replica, event>

UPDATE=1 rewrites the files; read the difference before you commit it. Fetches that carry no news are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.controller.raft.messages import AddVoter, Received, RemoveVoter
from ottla.controller.raft.voters import ReplicaKey
from tests.controller.raft.cluster import Cluster, Settings, directory_of, endpoint_of, make_cluster

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))
QUIET = ("Fetch epoch", "FetchReply epoch")


@dataclass
class Block:
    """Comment lines, then one command and its expected output."""

    comments: list[str] = field(default_factory=list)
    command: str = ""
    expected: list[str] = field(default_factory=list)

    def text(self, output: list[str]) -> str:
        return "\n".join([*self.comments, self.command, "----", *output]) + "\n"


def parse(text: str) -> Iterator[Block]:
    for part in text.strip().split("\n\n"):
        block, in_output = Block(), False
        for line in part.split("\n"):
            if in_output:
                block.expected.append(line)
            elif line == "----":
                in_output = True
            elif line.startswith("#"):
                block.comments.append(line)
            else:
                block.command = line
        yield block


class Script:
    """Runs commands against one cluster."""

    def __init__(self) -> None:
        self.cluster: Cluster

    def run(self, line: str) -> list[str]:
        name, *arguments = line.split()
        if name == "cluster":
            return self.make(*arguments)
        before = len(self.cluster.log)
        extra = getattr(self, name.replace("-", "_"))(*arguments) or []
        return [line for line in self.cluster.log[before:] if not is_quiet(line)] + extra

    def make(self, *arguments: str) -> list[str]:
        options = dict(argument.split("=") for argument in arguments)
        self.cluster = make_cluster(
            int(options.get("voters", 3)),
            int(options.get("observers", 0)),
            seed=int(options.get("seed", 0)),
            dynamic=options.get("kraft") == "1",
            settings=Settings(delay_ms_max=1, flush_ms_max=1),
        )
        return [line for line in self.cluster.log if not is_quiet(line)]

    def settle(self) -> list[str]:
        """Run until there is one leader, everybody follows it, and everything is committed everywhere."""
        assert self.cluster.run_until(self.cluster.now_ms + 20_000, self.cluster.settled), "it does not settle"
        return self.status()

    def run_ms(self, duration: str) -> None:
        self.cluster.run_until(self.cluster.now_ms + int(duration))

    def append(self, *values: str) -> None:
        assert self.cluster.leader is not None
        for value in values:
            self.cluster.leader.append(value)

    def append_at(self, node_id: str, value: str) -> None:
        self.cluster.replicas[int(node_id)].append(value)

    def crash(self, node_id: str) -> None:
        self.cluster.replicas[int(node_id)].crash()

    def restart(self, node_id: str) -> None:
        self.cluster.replicas[int(node_id)].start()

    def isolate(self, node_id: str) -> None:
        self.cluster.isolate(int(node_id))

    def heal(self) -> None:
        self.cluster.heal()

    def resign(self) -> None:
        leader = self.cluster.leader
        assert leader is not None
        leader.apply(leader.core.resign(self.cluster.now_ms))

    def snapshot(self, node_id: str) -> None:
        assert self.cluster.replicas[int(node_id)].take_snapshot()

    def add_voter(self, node_id: str) -> None:
        number = int(node_id)
        self._change(AddVoter(None, ReplicaKey(number, directory_of(number)), (endpoint_of(number),), 1000))

    def remove_voter(self, node_id: str) -> None:
        number = int(node_id)
        self._change(RemoveVoter(None, ReplicaKey(number, directory_of(number))))

    def _change(self, change: AddVoter | RemoveVoter) -> None:
        leader, cluster = self.cluster.leader, self.cluster
        assert leader is not None
        name = type(change).__name__
        leader.step(
            Received(
                change,
                lambda reply: cluster.trace(
                    f"{name} {change.voter.id}: {reply.error.name} {reply.message or ''}".rstrip()
                ),
            )
        )

    def status(self) -> list[str]:
        lines = []
        for replica in self.cluster.replicas.values():
            if not replica.is_up:
                lines.append(f"{replica.id} down")
                continue
            core = replica.core
            voters = "+".join(map(str, core.voters.last.ids))
            lines.append(
                f"{replica.id} {type(core.role).__name__:<11} epoch {core.epoch} leader {core.leader_id:>2} "
                f"log {core.log.start_offset}..{core.log.end} hw {core.high_watermark} voters {voters} {' '.join(replica.delivered)}".rstrip()
            )
        return lines


def is_quiet(line: str) -> bool:
    is_fetch = any(f": {kind}" in line for kind in QUIET)
    return is_fetch and not any(news in line for news in ("records=", "diverging=", "snapshot="))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    script, rewritten, differences = Script(), [], []
    for block in parse(path.read_text()):
        output = [line.rstrip() for line in script.run(block.command)]
        rewritten.append(block.text(output))
        if output != block.expected:
            differences.append((block.command, block.expected, output))
    if os.environ.get("UPDATE"):
        path.write_text("\n".join(rewritten))
        return
    for command, expected, output in differences[:1]:
        assert output == expected, f"{command} (UPDATE=1 rewrites the transcripts)"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6
