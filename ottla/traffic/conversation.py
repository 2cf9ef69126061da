"""Recorded traffic as rows for people and programs: each message by name and field, with filters.

A response also has the time that it took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.json_form import to_json
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.schema import ZERO_UUID
from ottla.traffic.entries import Entry, EntryKind, Opened, read_opened
from ottla.traffic.messages import FrameMessage, api_name, read_request_message, read_response_message

#: The bytes that are shown of a message that cannot be read.
SHOWN_BYTES_MAX = 64
#: The most requests of all connections that wait for a response: a file can have any number.
ASKED_MAX = 1_000_000


class TrafficFilter(NamedTuple):
    """Filters of messages. None means all."""

    apis: frozenset[str] | None = None
    clients: frozenset[str] | None = None
    connections: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    errors_only: bool = False


class _Asked(NamedTuple):
    time_us: int
    client_id: str | None


class Conversation:
    """The rows of one file. It remembers the ends of connections, the requests without a response, and the ids of topics."""

    def __init__(self, begun_ms: int, wanted: TrafficFilter) -> None:
        self._begun_ms = begun_ms
        self._wanted = wanted
        self._ends: dict[int, Opened] = {}
        self._asked: dict[tuple[int, int], _Asked] = {}
        self._topic_names: dict[str, str] = {}

    def rows(self, entries: Iterable[Entry]) -> Iterator[dict[str, object]]:
        """Yield a row for each entry that matches the filter."""
        for entry in entries:
            row = self._row(entry)
            if row is not None and self._is_wanted(row, entry):
                yield row

    def _row(self, entry: Entry) -> dict[str, object] | None:
        row: dict[str, object] = {
            "time_ms": self._begun_ms + entry.time_us / 1000,
            "connection": entry.connection,
            "kind": entry.kind.name.lower(),
        }
        match entry.kind:
            case EntryKind.OPENED:
                self._ends[entry.connection] = ends = read_opened(entry.frame)
                return row | {"client": ends.client, "broker": ends.broker, "node": ends.node_id}
            case EntryKind.CLOSED:
                self._ends.pop(entry.connection, None)
                return row
            case EntryKind.LOST:
                return row | {"frames": str(entry.frame, "utf-8", "replace")}
        row |= {
            "api": api_name(entry.api_key),
            "version": entry.version,
            "correlation_id": entry.correlation_id,
            "bytes": len(entry.frame),
        }
        if entry.is_masked:
            row["masked"] = True
        return row | self._body(entry)

    def _body(self, entry: Entry) -> dict[str, object]:
        is_request = entry.kind is EntryKind.REQUEST
        place = entry.connection, entry.correlation_id
        try:
            if is_request:
                message = read_request_message(entry.frame)
                if len(self._asked) < ASKED_MAX:
                    self._asked[place] = _Asked(entry.time_us, message.client_id)
                return {"client_id": message.client_id, "message": to_json(message.body, message.version)}
            found = self._answers(place, entry)
            message = read_response_message(entry.api_key, entry.version, entry.frame)
            self._learn(entry.api_key, message)
            return found | {"message": to_json(message.body, message.version)}
        except ProtocolError as why:
            if entry.is_cut:
                return {"unreadable": "its body was not recorded: it could have had a secret"}
            shown = bytes(entry.frame[:SHOWN_BYTES_MAX]).hex()
            return {"unreadable": str(why), "hex": shown}

    def _answers(self, place: tuple[int, int], entry: Entry) -> dict[str, object]:
        asked = self._asked.pop(place, None)
        if asked is None:
            return {}
        return {"client_id": asked.client_id, "latency_ms": (entry.time_us - asked.time_us) / 1000}

    def _learn(self, api_key: int, message: FrameMessage) -> None:
        """Remember the ids of topics, by which later messages name them (KIP-516)."""
        if api_key in (ApiKey.METADATA, ApiKey.CREATE_TOPICS):
            for topic in message.body.topics:
                if topic.topic_id != ZERO_UUID and topic.name is not None:
                    self._topic_names[uuid_to_str(topic.topic_id)] = topic.name

    def _is_wanted(self, row: Mapping[str, Any], entry: Entry) -> bool:
        wanted = self._wanted
        has_message = entry.kind in (EntryKind.REQUEST, EntryKind.RESPONSE)
        if wanted.connections is not None and entry.connection not in wanted.connections:
            return False
        if wanted == TrafficFilter(connections=wanted.connections):
            return True
        return (
            has_message
            and (wanted.apis is None or row["api"].lower() in wanted.apis)
            and (wanted.clients is None or row.get("client_id") in wanted.clients)
            and (wanted.topics is None or self._names_topic(row.get("message"), wanted.topics))
            and (not wanted.errors_only or "unreadable" in row or has_error(row.get("message")))
        )

    def _names_topic(self, value: object, topics: frozenset[str]) -> bool:
        """Return whether a text in a message is the name or id of one of the topics."""
        return any(text in topics or self._topic_names.get(text) in topics for text in _texts(value))


def has_error(value: object) -> bool:
    """Return whether a message (as JSON) has an error code."""
    if isinstance(value, Mapping):
        return any((name.endswith("rrorCode") and bool(each)) or has_error(each) for name, each in value.items())
    return isinstance(value, list) and any(map(has_error, value))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def errors_named(value: object) -> list[str]:
    """Return the names of the error codes in a message (as JSON), each once."""
    found: dict[str, None] = {}

    def walk(value: object) -> None:
        if isinstance(value, Mapping):
            for name, each in value.items():
                if name.endswith("rrorCode") and isinstance(each, int) and each:
                    found[ErrorCode(each).name] = None
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(value)
    return list(found)
