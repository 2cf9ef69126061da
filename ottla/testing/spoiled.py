"""The faults inside nodes: of the clock, of the disk and of responses to clients. A cluster has these verbs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from ottla.protocol.api import APIS, BROKER, Api, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testing.errors import InvalidFault, NoSuchNode, in_range
from ottla.testing.inside.faults import NodeFaults, RequestFault

FOLDER = "faults"
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
#: A hundred years: even with the largest timestamps of records, Kafka's arithmetic does not overflow then.
PASSED_DAYS_MAX = 36_525
FAULT_SECONDS_MAX = 3_600
#: The most requests that get a fault: there is a file for each.
STRIKES_MAX = 10_000
#: The APIs that clients request from brokers. `fail_next`, `delay` and `versions` take them by name; docs/TESTING.md lists
#: them.
STRUCK = {api.name: api for api in APIS.values() if api.listeners >= BROKER}


class Strikes:
    """A folder with a file for each request that gets a fault: the node that handles a request takes a file away."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @property
    def left(self) -> int:
        return len(os.listdir(self._folder))


class Spoiled:
    """Keeps the faults of each node, and sends them there. A node that is started again gets its faults again."""

    def __init__(self, directory: str, node_ids: Sequence[int]) -> None:
        self._faults = {node_id: NodeFaults() for node_id in node_ids}
        self._folder = os.path.join(directory, FOLDER)

    def faults_of(self, node_id: int) -> NodeFaults:
        try:
            return self._faults[node_id]
        except (KeyError, TypeError):
            ids = ", ".join(map(str, self._faults))
            raise NoSuchNode(f"there is no node {node_id!r}", f"the nodes of this cluster are {ids}") from None

    def _named(self, node_id: int | None) -> int:
        """Return the id of the node for a verb. A cluster of one node needs no id.

        Raises:
            NoSuchNode: the cluster has several, or none of that id.
        """
        if node_id is None:
            if len(self._faults) > 1:
                ids = ", ".join(map(str, self._faults))
                raise NoSuchNode("no node is named, and this cluster has several", f"name one of {ids}")
            return next(iter(self._faults))
        self.faults_of(node_id)
        return node_id

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for all nodes at once: retention, compaction, sessions, transactions and locks notice it.

        Nodes do not lose contact with each other, and clients' clocks do not move: after ten days, a record with a client's
        timestamp is ten days old. A group member with a shorter session timeout is removed, as after such a silence.
        """
        units = {
            "days": (days, DAY_MS),
            "hours": (hours, HOUR_MS),
            "minutes": (minutes, MINUTE_MS),
            "seconds": (seconds, SECOND_MS),
        }
        passed_ms = sum(in_range(unit, count, -DAY_MS, DAY_MS * 100) * ms for unit, (count, ms) in units.items())
        if passed_ms < 0:
            raise InvalidFault("time does not go back", "skew_clock can set a node's wall clock back")
        advanced_ms = self.advanced_ms + round(passed_ms)
        in_range("the days in all", advanced_ms / DAY_MS, 0, PASSED_DAYS_MAX)
        self._spoil((), advanced_ms=advanced_ms)

    @property
    def advanced_ms(self) -> int:
        """The time by which `advance` has moved the clocks."""
        return max(faults.advanced_ms for faults in self._faults.values())

    @property
    def time_ms(self) -> int:
        """The time by the nodes' clocks, which `advance` moves: a timestamp for records that a client writes after that."""
        return time.time_ns() // 1_000_000 + self.advanced_ms

    def skew_clock(self, node_id: int, seconds: float) -> None:
        """Set the wall clock of one node ahead of the others', or behind them. Its timeouts are not affected."""
        days = PASSED_DAYS_MAX
        skew_s = in_range("seconds", seconds, -days * DAY_MS / SECOND_MS, days * DAY_MS / SECOND_MS)
        self._spoil([node_id], skew_ms=round(skew_s * SECOND_MS))

    def disk_full(self, *node_ids: int, full: bool = True) -> None:
        """Leave no free block on the disks of these nodes, or of all.

        Files that have preallocated blocks (at least 16 KB each) fill these first.
        """
        self._spoil(node_ids, disk_full=full)

    def slow_disk(self, ms: int, *node_ids: int) -> None:
        """Let each flush of these nodes, or of all, take this much longer. Kafka acknowledges before the flush, unless flush.messages is set."""
        self._spoil(node_ids, slow_disk_ms=round(in_range("ms", ms, 0, FAULT_SECONDS_MAX * SECOND_MS)))

    def fail_next(
        self,
        api: ApiKey | str | int,
        error: ErrorCode | str | int,
        n: int = 1,
        *,
        nodes: Sequence[int] = (),
        served: bool = False,
    ) -> Strikes:
        """Answer the next `n` requests of clients with an error: `fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")`.

        They are counted for all nodes together. With `served` the request takes effect, and only its response is the error.
        """
        key, code = struck(api).key, error_named(error)
        strikes = Strikes(self._tokens(nodes, n))
        self._add(nodes, RequestFault(int(key), int(code), served, 0, strikes._folder))
        return strikes

    def delay(
        self, api: ApiKey | str | int, seconds: float, n: int | None = None, *, nodes: Sequence[int] = ()
    ) -> None:
        """Delay the responses to this API's next `n` requests, or to all until `heal`."""
        key = struck(api).key
        delay_ms = round(in_range("seconds", seconds, 0, FAULT_SECONDS_MAX) * SECOND_MS)
        tokens = None if n is None else self._tokens(nodes, n)
        self._add(nodes, RequestFault(int(key), None, True, delay_ms, tokens))

    def versions(self, api: ApiKey | str | int, *, lowest: int | None = None, highest: int | None = None) -> None:
        """Offer clients fewer versions of an API, as older or newer brokers do.

        A request in another version gets UNSUPPORTED_VERSION.
        """
        known = struck(api)
        low = known.advertised_min if lowest is None else lowest
        high = known.max_version if highest is None else highest
        if not known.advertised_min <= low <= high <= known.max_version:
            there = f"there are {known.advertised_min} to {known.max_version}"
            raise InvalidFault(f"{known.name} cannot have the versions {low} to {high}", there)
        for node_id, faults in self._faults.items():
            others = tuple(row for row in faults.versions if row[0] != known.key)
            self._spoil([node_id], versions=(*others, (int(known.key), low, high)))

    def _mend_nodes(self) -> None:
        self._spoil((), disk_full=False, slow_disk_ms=0, skew_ms=0, requests=(), versions=())

    def _tokens(self, node_ids: Sequence[int], count: int) -> str:
        for node_id in node_ids:
            self.faults_of(node_id)
        if in_range("n", count, 1, STRIKES_MAX) != int(count):
            raise InvalidFault(f"n={count} is no number of requests", "it is a whole number")
        os.makedirs(self._folder, exist_ok=True)
        folder = tempfile.mkdtemp(dir=self._folder)
        for number in range(int(count)):
            with open(os.path.join(folder, str(number)), "wb"):
                pass
        return folder

    def _add(self, node_ids: Sequence[int], fault: RequestFault) -> None:
        for node_id in node_ids or self._faults:
            self._spoil([node_id], requests=(*self.faults_of(node_id).requests, fault))

    def _spoil(self, node_ids: Sequence[int], **changes: Any) -> None:
        changed = {node_id: replace(self.faults_of(node_id), **changes) for node_id in node_ids or self._faults}
        for node_id, faults in changed.items():
            self._set_faults(node_id, faults)

    def _set_faults(self, node_id: int, faults: NodeFaults) -> None:
        if faults != self._faults[node_id]:
            self._faults[node_id] = faults
            self._send_faults(node_id)

    def _send_faults(self, node_id: int) -> None:
        raise NotImplementedError


def struck(api: ApiKey | str | int) -> Api:
    """Return the API of a name or a number.

    Raises: InvalidFault: clients do not send it to brokers.
    """
    if isinstance(api, int):
        found = next((each for each in STRUCK.values() if each.key == api), None)
    else:
        wanted = str(api).replace("_", "").lower()
        found = next((each for each in STRUCK.values() if each.name.lower() == wanted), None)
    if found is None:
        raise InvalidFault(f"brokers have no API {api!r} for clients", _near(api, STRUCK))
    return found


def error_named(error: ErrorCode | str | int) -> ErrorCode:
    """Return Kafka's error of a name or a number.

    Raises:
        InvalidFault: there is none.
    """
    wanted = str(error).upper()
    found = next((each for each in ErrorCode if each == error or each.name == wanted), None)
    if found is None:
        raise InvalidFault(f"Kafka has no error {error!r}", _near(error, ErrorCode.__members__))
    return found


def _near(word: object, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(str(word).lower(), by_lower, n=3)
    listed = "docs/TESTING.md lists the names"
    return f"is {' or '.join(by_lower[each] for each in near)} meant? {listed}" if near else listed
