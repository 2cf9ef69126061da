"""Golden transcripts of a small quorum: milliseconds, replica, event. Fetches without new records are left out.

cluster [voters=3] [observers=0] [seed=0] [kraft=1]
settle · run-ms 50 · status · heal · resign
append a b · append-at 1 a
crash 1 · restart 1 · isolate 1 · snapshot 1
add-voter 1 · remove-voter 1
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.controller.raft.messages import AddVoter, Received, RemoveVoter
from ottla.controller.raft.voters import ReplicaKey
from tests import transcripts
from tests.controller.raft.cluster import Cluster, Settings, directory_of, endpoint_of, make_cluster

TRANSCRIPTS = transcripts.beside(__file__)
QUIET = ("Fetch epoch", "FetchReply epoch")


class RaftTranscript:
    """A cluster, and the length of the part of its log that is printed."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self._printed = 0
        self.commands: dict[str, transcripts.Command] = {
            "cluster": self.make,
            "settle": self.settle,
            "run-ms": self.run_ms,
            "append": self.append,
            "append-at": self.append_at,
            "crash": self.crash,
            "restart": self.restart,
            "isolate": self.isolate,
            "heal": self.heal,
            "resign": self.resign,
            "snapshot": self.snapshot,
            "add-voter": self.add_voter,
            "remove-voter": self.remove_voter,
            "status": self.status,
        }

    def drain(self) -> list[str]:
        lines = self.cluster.log[self._printed :]
        self._printed = len(self.cluster.log)
        return [line for line in lines if not is_quiet(line)]

    def make(self, voters: str = "3", observers: str = "0", seed: str = "0", kraft: str = "0") -> None:
        self.cluster = make_cluster(
            int(voters),
            int(observers),
            seed=int(seed),
            dynamic=kraft == "1",
            settings=Settings(delay_ms_max=1, flush_ms_max=1),
        )

    def settle(self) -> None:
        """Run until there is one leader, every replica follows it, and everything is committed everywhere."""
        assert self.cluster.run_until(self.cluster.now_ms + 20_000, self.cluster.settled), "it does not settle"
        self.status()

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

    def status(self) -> None:
        for replica in self.cluster.replicas.values():
            if not replica.is_up:
                self.cluster.log.append(f"{replica.id} down")
                continue
            core = replica.core
            voters = "+".join(map(str, core.state.voters.last.ids))
            self.cluster.log.append(
                f"{replica.id} {type(core.state.role).__name__:<11} epoch {core.state.epoch} leader {core.state.leader_id:>2} "
                f"log {core.state.log.start_offset}..{core.state.log.end} hw {core.state.high_watermark} voters {voters} {' '.join(replica.delivered)}".rstrip()
            )


def is_quiet(line: str) -> bool:
    is_fetch = any(f": {kind}" in line for kind in QUIET)
    return is_fetch and not any(news in line for news in ("records=", "diverging=", "snapshot="))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = RaftTranscript()
    transcripts.check(path, transcripts.Interpreter(transcript.commands, transcript.drain))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6
