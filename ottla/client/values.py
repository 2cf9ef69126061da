"""Numbers, times, URLs and records as people write and read them.

A record is one JSON line, in the output (`ottla consume -o json`) as in the input (`ottla produce -i json`):

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v",
     "headers": [{"key": "trace", "value": "abc"}]}

Bytes that are not UTF-8 stand under "key_base64" and "value_base64" instead. In the input, offset and topic are ignored,
headers may also be an object, and a key or value that is an object, list, number or boolean is written as compact JSON.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.client.errors import ClusterError
from ottla.client.failures import Failure, Kind
from ottla.protocol.records.record import NewRecord, Record

#: Python's numbers have no bound, the protocol's have.
INT8_MAX, INT16_MAX, INT32_MAX = 2**7 - 1, 2**15 - 1, 2**31 - 1
INT64_MAX = 2**63 - 1
_DIGITS = re.compile(r"-?[0-9]{1,19}")


def number_in(text: str, low: int, high: int) -> int | None:
    """Return the number that a text of ASCII digits stands for, or None if it is no number or out of bounds."""
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and low <= number <= high else None


def time_ms(option: str, text: str) -> int:
    """Return the epoch milliseconds of a time in ISO 8601 (UTC if it has no zone), or of @ and the number itself."""
    if text.startswith("@") and (epoch_ms := number_in(text[1:], 0, INT64_MAX)) is not None:
        return epoch_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write earliest, latest, an offset, 2026-01-31T12:00:00Z, or @1769860800000"
        raise ClusterError(f"{option} {text!r} is no offset and no time", hint, Kind.WRONG) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def time_text(timestamp_ms: int) -> str | None:
    """Return a time as ISO 8601 in UTC, None for one that is not set."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")


_FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "key_base64", "value_base64", "headers"}


class Incoming(NamedTuple):
    record: NewRecord
    partition: int | None


def to_line(topic: str, partition: int, record: Record) -> str:
    row: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_encoded("key", record.key),
        **_encoded("value", record.value),
    }
    if record.headers:
        row["headers"] = [
            {**_encoded("key", name.encode("utf-8", "surrogateescape")), **_encoded("value", value)}
            for name, value in record.headers
        ]
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def from_line(line: str, default_timestamp: int) -> Incoming:
    """Return the record of a line. Raises ValueError, which says what is wrong with the line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as fault:
        raise ValueError(f"not JSON: {fault.msg} at column {fault.colno}") from None
    if not isinstance(row, dict):
        raise ValueError(f"a JSON object is wanted, not {type(row).__name__}")
    if unknown := row.keys() - _FIELDS:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    timestamp = _integer(row, "timestamp", -1)
    partition = _integer(row, "partition", 0)
    headers = tuple(_header(item) for item in _header_items(row.get("headers")))
    record = NewRecord(
        _decoded(row, "key"), _decoded(row, "value"), default_timestamp if timestamp is None else timestamp, headers
    )
    return Incoming(record, partition)


def _encoded(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def _decoded(row: dict[str, object], name: str) -> bytes | None:
    encoded = row.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is not a string")
        try:
            return b64decode(encoded, validate=True)
        except ValueError:
            raise ValueError(f"{name}_base64 is not base64") from None
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _integer(row: dict[str, object], name: str, lowest: int) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= INT64_MAX:
        raise ValueError(f"{name} is {value!r}, not a whole number from {lowest}")
    return value


def _header_items(headers: object) -> list[dict[str, object]]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [{"key": name, "value": value} for name, value in headers.items()]
    if isinstance(headers, list) and all(isinstance(item, dict) for item in headers):
        return headers
    raise ValueError('headers must be an object, or a list of {"key": ..., "value": ...}')


def _header(item: dict[str, object]) -> tuple[str, bytes | None]:
    key = _decoded(item, "key")
    if key is None:
        raise ValueError("a header has no key")
    return key.decode("utf-8", "surrogateescape"), _decoded(item, "value")


def is_url(text: str) -> bool:
    """Return whether a text is a URL of HTTP that names a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_registry(urls: str) -> None:
    """Check the value of --registry: addresses of HTTP, with commas between them.

    Raises:
        Failure: one of them is no such address. It is checked at the start, because values without a schema id never need the
        registry.
    """
    for text in urls.split(","):
        if not is_url(text.strip()):
            raise Failure(f"--registry {text!r} is no URL", "for example http://localhost:8081", Kind.WRONG)
