"""The `quorum-state` file: the epoch, and the candidate or leader of it. It is Kafka's JSON, version 0 or 1.

Version 1 is for dynamic voters: it adds the directory id of the candidate voted for, and omits the voters.
"""

from __future__ import annotations

import json
from typing import Any

from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.voters import DYNAMIC_VOTERS, ReplicaKey
from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.schema import ZERO_UUID
from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files

FILE = "quorum-state"


class ElectionStore:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.path = f"{directory}/{FILE}"
        #: The voters of the election in the file; empty if there is no file, or with dynamic voters.
        self.voter_ids: frozenset[int] = frozenset()

    def read(self) -> ElectionState | None:
        """Read the file; return None if it is missing. Raises CorruptFile if it is invalid: a guess could lead to a second vote."""
        data = self._files.read(self.path)
        if data is None:
            return None
        try:
            state = json.loads(data)
            election = _decode(state)
            self.voter_ids = frozenset(int(voter["voterId"]) for voter in state.get("currentVoters") or ())
            return election
        except (ValueError, KeyError, TypeError) as fault:
            raise CorruptFile(self.path, f"is not a quorum-state file: {fault}") from None

    def write(self, election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> None:
        """Write and sync the file."""
        state = _encode(election, kraft_version, voter_ids)
        self._files.write_atomic(self.path, json.dumps(state, separators=(",", ":")).encode())


def _encode(election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> dict[str, object]:
    voted_id = election.voted.id if election.voted else -1
    if kraft_version >= DYNAMIC_VOTERS:
        directory_id = election.voted.directory_id if election.voted else ZERO_UUID
        return {
            "leaderId": election.leader_id,
            "leaderEpoch": election.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_str(directory_id),
            "data_version": 1,
        }
    return {
        "clusterId": "",
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
        "data_version": 0,
    }


def _decode(state: dict[str, Any]) -> ElectionState:
    if state["data_version"] not in (0, 1):
        raise ValueError(f"data_version is {state['data_version']}")
    epoch, leader_id, voted_id = (int(state[name]) for name in ("leaderEpoch", "leaderId", "votedId"))
    voted = None
    if voted_id >= 0:
        directory = state.get("votedDirectoryId")
        voted = ReplicaKey(voted_id, uuid_from_str(directory) if directory else ZERO_UUID)
    if epoch < 0:
        raise ValueError(f"leaderEpoch is {epoch}")
    return ElectionState(epoch, leader_id, voted)
