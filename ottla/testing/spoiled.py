"""The faults that act inside nodes: of the clock, of the disk and of the answers to clients. A cluster has these verbs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testing.inside.faults import NodeFaults, RequestFault

FOLDER = "faults"
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


class Strikes:
    """Requests that are to be struck: each node that strikes one takes one away."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @property
    def left(self) -> int:
        return len(os.listdir(self._folder))


class Spoiled:
    """Keeps what is wrong with each node, and sends it there. A node that is started again has its faults again."""

    def __init__(self, directory: str, node_ids: Sequence[int]) -> None:
        self._faults = {node_id: NodeFaults() for node_id in node_ids}
        self._folder = os.path.join(directory, FOLDER)

    def faults_of(self, node_id: int) -> NodeFaults:
        return self._faults[node_id]

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for all nodes at once: retention, compaction, sessions, transactions and locks follow.

        Nodes stay in touch with each other meanwhile, and clients' clocks stay: a record that a client stamps after ten days is ten days
        old. A member of a group whose session time-out is shorter is out, as after such a silence.
        """
        passed_ms = round(days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS)
        if passed_ms < 0:
            raise ValueError("time does not go back; skew_clock sets a node's wall clock back")
        advanced_ms = max(faults.advanced_ms for faults in self._faults.values()) + passed_ms
        self._spoil((), advanced_ms=advanced_ms)

    @property
    def time_ms(self) -> int:
        """The time by the nodes' clocks, which `advance` moves: a timestamp for records that a client writes after that."""
        return time.time_ns() // 1_000_000 + max(faults.advanced_ms for faults in self._faults.values())

    def skew_clock(self, node_id: int, seconds: float) -> None:
        """Set the wall clock of one node so far ahead of the others', or behind them. Its time-outs do not follow."""
        self._spoil([node_id], skew_ms=round(seconds * SECOND_MS))

    def disk_full(self, *node_ids: int, full: bool = True) -> None:
        """Leave no free block on the disks of these nodes, or of all. Files that have blocks ahead (16 KB each at least) fill them first."""
        self._spoil(node_ids, disk_full=full)

    def slow_disk(self, ms: int, *node_ids: int) -> None:
        """Let each flush of these nodes, or of all, take so much longer. Kafka acknowledges before the flush, unless flush.messages is set."""
        self._spoil(node_ids, slow_disk_ms=ms)

    def fail_next(
        self, api: str | int, error: str | int, n: int = 1, *, nodes: Sequence[int] = (), served: bool = False
    ) -> Strikes:
        """Answer the next `n` requests of clients with an error: `fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")`.

        They count for all of the nodes together. With `served` the request takes effect, and only its response is the error.
        """
        strikes = Strikes(self._tokens(n))
        self._add(nodes, RequestFault(_api(api), _error(error), served, 0, strikes._folder))
        return strikes

    def delay(self, api: str | int, seconds: float, n: int | None = None, *, nodes: Sequence[int] = ()) -> None:
        """Send the responses to this API's next `n` requests, or to all until `heal`, so much later."""
        tokens = None if n is None else self._tokens(n)
        self._add(nodes, RequestFault(_api(api), None, True, round(seconds * SECOND_MS), tokens))

    def versions(self, api: str | int, *, lowest: int | None = None, highest: int | None = None) -> None:
        """Offer clients fewer versions of an API, as older or newer brokers do. A request in another version is UNSUPPORTED_VERSION."""
        known = APIS[ApiKey(_api(api))]
        low = known.advertised_min if lowest is None else lowest
        high = known.max_version if highest is None else highest
        if not known.advertised_min <= low <= high <= known.max_version:
            raise ValueError(
                f"versions {low} to {high} of {known.name}: there are {known.advertised_min} to {known.max_version}"
            )
        for node_id, faults in self._faults.items():
            others = tuple(row for row in faults.versions if row[0] != known.key)
            self._spoil([node_id], versions=(*others, (int(known.key), low, high)))

    def _mend_nodes(self) -> None:
        self._spoil((), disk_full=False, slow_disk_ms=0, skew_ms=0, requests=(), versions=())

    def _tokens(self, count: int) -> str:
        os.makedirs(self._folder, exist_ok=True)
        folder = tempfile.mkdtemp(dir=self._folder)
        for number in range(count):
            with open(os.path.join(folder, str(number)), "wb"):
                pass
        return folder

    def _add(self, node_ids: Sequence[int], fault: RequestFault) -> None:
        for node_id in node_ids or self._faults:
            self._spoil([node_id], requests=(*self._faults[node_id].requests, fault))

    def _spoil(self, node_ids: Sequence[int], **changes: Any) -> None:
        for node_id in node_ids or self._faults:
            changed = replace(self._faults[node_id], **changes)
            if changed != self._faults[node_id]:
                self._faults[node_id] = changed
                self._send_faults(node_id)

    def _send_faults(self, node_id: int) -> None:
        raise NotImplementedError


def _api(api: str | int) -> int:
    if isinstance(api, int):
        return int(ApiKey(api))
    wanted = api.replace("_", "").lower()
    for known in APIS.values():
        if known.name.lower() == wanted:
            return int(known.key)
    raise ValueError(f"Kafka has no API {api!r}; names are those of ApiKey: Produce, Fetch, JoinGroup")


def _error(error: str | int) -> int:
    try:
        return int(ErrorCode(error) if isinstance(error, int) else ErrorCode[error])
    except KeyError:
        raise ValueError(
            f"Kafka has no error {error!r}; names are those of ErrorCode: NOT_LEADER_OR_FOLLOWER"
        ) from None
