"""Limits of connections per node, listener and address, and of the size of a request.

A wrong size is explained by the first bytes.

At a limit of the node an unknown connection, which has not logged in or has not even sent a request, is closed for a new one:
silent sockets, which anyone can open, must not keep clients out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Buffer
from ottla.server.clock import Clock
from ottla.server.config.key import Values
from ottla.server.quotas.rate import ConnectionQuotas
from ottla.server.transport import DEFAULT_OPTIONS, LISTEN_BACKLOG, SocketOptions, descriptors_reserved

INT_MAX = 2**31 - 1
#: The interval at which a limit of 0 connections is checked again.
HELD_MS_MAX = 1_000
NS_PER_S = 1_000_000_000
#: A listener writes this many lines a second about clients that it refuses.
LINES_PER_SECOND = 10


@dataclass(slots=True)
class ConnectionRate:
    """A limit of new connections per second (KIP-612), kept by not accepting for a while: the kernel's queue holds the clients back.

    It is a token bucket that holds one second's connections: a burst may use what the second before has left.
    """

    per_second: int = INT_MAX
    _tokens: float = 1.0
    _filled_ns: int = -1

    def opened(self, now_ns: int) -> int:
        """Count an accepted connection. Return for how many ms no other may be accepted."""
        if self.per_second == INT_MAX:
            return 0
        if self._filled_ns < 0:
            self._tokens = float(max(1, self.per_second))
        else:
            gained = (now_ns - self._filled_ns) * self.per_second / NS_PER_S
            self._tokens = min(self._tokens + gained, float(max(1, self.per_second)))
        self._filled_ns = now_ns
        self._tokens -= 1
        if self._tokens >= 1:
            return 0
        if not self.per_second:
            return HELD_MS_MAX
        return int((1 - self._tokens) * 1000 / self.per_second) + 1


#: A new connection has this long for its login or its first request, before it may be closed for another one.
UNKNOWN_NS = 1_000_000_000


class Newcomer(Protocol):
    """A connection that is perhaps not known yet."""

    opened_ns: int

    @property
    def is_known(self) -> bool: ...
    def refuse(self, reason: str) -> None: ...
    def expire(self) -> None:
        """Close the descriptor of a refused connection without waiting for the peer to read."""


class Newcomers:
    """The connections that were unknown at the last check, the oldest first."""

    __slots__ = ("_unknown",)

    def __init__(self) -> None:
        self._unknown: dict[Newcomer, None] = {}

    def add(self, connection: Newcomer) -> None:
        self._unknown[connection] = None

    def forget(self, connection: Newcomer) -> None:
        self._unknown.pop(connection, None)

    def make_way(self, now_ns: int) -> bool:
        """Close the oldest connection that is still unknown after its time. Return False if there is none."""
        while self._unknown:
            oldest = next(iter(self._unknown))
            if not oldest.is_known and now_ns - oldest.opened_ns < UNKNOWN_NS:
                return False
            del self._unknown[oldest]
            if not oldest.is_known:
                oldest.refuse("it has sent no request, or not logged in, and makes way for another connection")
                oldest.expire()
                return True
        return False


@dataclass(slots=True)
class ListenerLimits:
    """The limits of one listener."""

    connections_max: int = INT_MAX
    rate: ConnectionRate = field(default_factory=ConnectionRate)

    def update(self, values: Values) -> None:
        """Take the limits that are set with the listener's prefix."""
        self.connections_max = values.get("max.connections", INT_MAX)
        self.rate.per_second = values.get("max.connection.creation.rate", INT_MAX)


@dataclass(slots=True)
class ConnectionLimits:
    """The limits that the listeners of a node share. They may change at run time (dynamic configuration)."""

    request_bytes_max: int = 104_857_600
    connections_max: int = INT_MAX
    connections_per_ip_max: int = INT_MAX
    connections_per_ip_overrides: dict[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    socket_options: SocketOptions = DEFAULT_OPTIONS
    rate: ConnectionRate = field(default_factory=ConnectionRate)
    quotas: ConnectionQuotas = field(default_factory=ConnectionQuotas)
    by_listener: dict[str, ListenerLimits] = field(default_factory=dict)
    open_by_ip: Counter[str] = field(default_factory=Counter)
    open_total: int = 0
    #: The most connections for which the process has descriptors (`Network.room`).
    room: int = INT_MAX
    newcomers: Newcomers = field(default_factory=Newcomers)

    def update(self, values: Values, set_names: Collection[str], of_listener: Callable[[str], Values]) -> None:
        """Take the limits from a node's configuration. If a limit becomes lower, existing connections stay.

        `set_names` are the properties that are not defaults. `of_listener` returns those that are set for one listener.
        """
        self.request_bytes_max = values["socket.request.max.bytes"]
        self.connections_max = values["max.connections"]
        self.connections_per_ip_max = values["max.connections.per.ip"]
        self.connections_per_ip_overrides = read_overrides(values["max.connections.per.ip.overrides"])
        self.idle_ms_max = values["connections.max.idle.ms"]
        self.rate.per_second = values["max.connection.creation.rate"]
        self.socket_options = SocketOptions(
            max(values["socket.listen.backlog.size"], LISTEN_BACKLOG),
            # Kafka's default of 100 KiB would disable the kernel's auto-tuning, which is better for long round trips.
            values["socket.send.buffer.bytes"] if "socket.send.buffer.bytes" in set_names else None,
            values["socket.receive.buffer.bytes"] if "socket.receive.buffer.bytes" in set_names else -1,
        )
        for name, limits in self.by_listener.items():
            limits.update(of_listener(name))

    def of(self, listener: str) -> ListenerLimits:
        """Return the limits of one listener."""
        return self.by_listener.setdefault(listener, ListenerLimits())

    def refusal(self, ip: str, exempt: bool, now_ns: int) -> str | None:
        """Return why a further connection from this address is refused, or None.

        `exempt` means that the connection is between brokers.
        """
        limit = self.connections_per_ip_overrides.get(ip, self.connections_per_ip_max)
        if self.open_by_ip[ip] >= limit:
            return f"there are {limit} connections from that address already (max.connections.per.ip)"
        total, refusal = self.open_total, None
        if total >= self.connections_max and not exempt:
            refusal = f"there are {total} connections already (max.connections)"
        elif total >= self.room + (descriptors_reserved(self.room) // 2 if exempt else 0):
            refusal = f"there are {total} connections already, and the other descriptors are for files (ulimit -n)"
        return None if refusal is None or self.newcomers.make_way(now_ns) else refusal

    def opened(self, ip: str) -> None:
        self.open_total += 1
        self.open_by_ip[ip] += 1

    def closed(self, ip: str) -> None:
        self.open_total -= 1
        self.open_by_ip[ip] -= 1
        if not self.open_by_ip[ip]:
            del self.open_by_ip[ip]


def read_overrides(text: str) -> dict[str, int]:
    """Return the limits by host, from a list of host:limit.

    An IPv6 address itself has colons. The configuration has rejected malformed entries.
    """
    pairs = (entry.rpartition(":") for entry in text.split(",") if entry.strip())
    return {host.strip(): int(limit) for host, _, limit in pairs}


#: The largest request of APIs other than these: twice the largest legitimate one, which is an IncrementalAlterConfigs of 8 MB.
OTHER_REQUEST_BYTES_MAX = 16 * 1024 * 1024
#: APIs whose requests have records, or contain another request.
LARGE_REQUESTS = frozenset({ApiKey.PRODUCE, ApiKey.ENVELOPE})
#: First bytes -> the protocol whose first message begins with them.
SIGNS = (
    (b"\x16\x03", "a TLS handshake: the client wants SSL, but this listener is plaintext"),
    (b"\x80", "an SSLv2 handshake: the client wants SSL, but this listener is plaintext"),
    (b"GET ", "an HTTP request"),
    (b"POST", "an HTTP request"),
    (b"PUT ", "an HTTP request"),
    (b"HEAD", "an HTTP request"),
    (b"DELE", "an HTTP request"),
    (b"OPTI", "an HTTP request"),
    (b"CONN", "an HTTP request"),
    (b"PRI ", "an HTTP/2 request"),
    (b"SSH-", "an SSH client"),
    (b"\x04\x01", "a SOCKS request"),
    (b"\x05\x01\x00", "a SOCKS request"),
    (b"*1\r\n", "a Redis client"),
)


def describe_foreign_bytes(first_bytes: bytes, size: int, limit: int) -> str:
    """Return the reason to close a connection if the size of its frame is out of bounds."""
    for sign, what in SIGNS:
        if first_bytes.startswith(sign):
            return f"the first bytes look like {what}"
    if size < 0:
        return f"Invalid receive (size = {size})"
    return f"Invalid receive (size = {size} larger than {limit})"


def why_too_large(beginning: Buffer, size: int) -> str | None:
    """Return the reason to close a connection if it begins to send a large request of an API whose requests have no records."""
    if len(beginning) < 2 or (api_key := int.from_bytes(beginning[:2], "big")) in LARGE_REQUESTS:
        return None
    return f"Invalid receive (size = {size} larger than {OTHER_REQUEST_BYTES_MAX} for API key {api_key})"


class BoundedLines:
    """Writes up to `LINES_PER_SECOND` warnings that any connection may cause.

    The next line has the number of those that were left out.

    A client whose certificate is wrong, or a node that knows a peer by a wrong address, connects again and again: 80 lines a second were
    seen.
    """

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._second_ms = 0
        self._written = 0
        self._left_out = 0

    def warning(self, text: str, *given: object) -> None:
        """Write a line, or count it."""
        now_ms = self._clock.mono_ms()
        if now_ms - self._second_ms >= 1_000:
            self._second_ms, self._written = now_ms, 0
        if self._written >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._written += 1
        if self._left_out:
            text, given = f"{text} (%d more before it were not written)", (*given, self._left_out)
            self._left_out = 0
        self._log.warning(text, *given)
