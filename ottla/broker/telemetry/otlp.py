"""Decoding of a push: OpenTelemetry's MetricsData as a list of points.

Kafka's clients send sums and gauges. A histogram or summary of another client becomes several points, as Prometheus has them: `_count`,
`_sum`, and `_bucket` by `le` or the value by `quantile`; of an exponential histogram the first two.

The few fields that count are read here: opentelemetry-proto and protobuf would take 5 MB of the image, and 140 ms of their first import.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Turn, Work
from ottla.server.metrics import COUNTER, GAUGE

#: The budget of one message, in records of `protocol.work`: some twenty microseconds.
POINT_COST = 16
LABELS_MAX = 16
NAME_LENGTH_MAX = 128
LABEL_LENGTH_MAX = 256
#: The largest point or resource, each of which is read in one turn.
LEAF_BYTES_MAX = 16 * 1024
AGGREGATION_TEMPORALITY_DELTA = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Labels = tuple[tuple[str, str], ...]
Value = int | memoryview
#: The suffix of the metric's name, labels beside the point's own, and the value.
Row = tuple[str, Labels, float]


class Point(NamedTuple):
    """One value of one series. `is_delta`: it is to be added to the values before it."""

    name: str
    kind: str
    labels: Labels
    value: float
    is_delta: bool


def decode(data: bytes, points_max: int) -> Work[tuple[list[Point], int]]:
    """Return the points, and the number of those that were dropped because there were too many.

    Raises:
        KafkaError: INVALID_RECORD, the bytes are no MetricsData.
    """
    found: list[Point] = []
    dropped = 0
    turn = Turn()
    try:
        # Each loop passes on the None that ends a turn.
        for resource_metrics in _nested(memoryview(data), 1, turn):
            if resource_metrics is None:
                yield None
                continue
            of_client: Labels = ()
            for resource in _nested(resource_metrics, 1, turn):
                if resource is None:
                    yield None
                else:
                    of_client = _labels(_leaf(resource), 1)
            for scope in _nested(resource_metrics, 2, turn):
                if scope is None:
                    yield None
                    continue
                for metric in _nested(scope, 2, turn):
                    if metric is None:
                        yield None
                        continue
                    dropped += yield from _metric(metric, of_client, found, points_max, turn)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    return found, dropped


def _metric(metric: memoryview, of_client: Labels, found: list[Point], points_max: int, turn: Turn) -> Work[int]:
    """Add the points of one metric to `found`; return the number of those that were dropped."""
    name, kind, is_delta, dropped, read = "", GAUGE, False, 0, _number
    kept: list[memoryview] = []
    for number, value in _fields(metric):
        if turn.spend(1):
            yield None
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            name = bytes(value[: 4 * NAME_LENGTH_MAX]).decode(errors="ignore")[:NAME_LENGTH_MAX]
        elif number in READERS:
            read = READERS[number]
            for inner, content in _fields(value):
                if turn.spend(POINT_COST):
                    yield None
                if inner == 1 and isinstance(content, memoryview):
                    if len(found) + len(kept) < points_max:
                        kept.append(content)
                    else:
                        dropped += 1
                elif inner == 2 and number in WITH_TEMPORALITY:
                    is_delta = content == AGGREGATION_TEMPORALITY_DELTA
                elif inner == 3 and number == SUM:
                    kind = COUNTER if content == 1 else GAUGE
    for point in kept:
        if turn.spend(POINT_COST):
            yield None
        attributes, rows = read(_leaf(point))
        labels = of_client + _labels(point, attributes)
        room = points_max - len(found)
        dropped += max(0, len(rows) - room)
        if turn.spend(POINT_COST * (len(rows) - 1)):
            yield None
        found += [Point(name + suffix, kind, labels + row, value, is_delta) for suffix, row, value in rows[:room]]
    return dropped


# ---- the kinds of points: the number of their attributes' field, and suffix, labels and value of each row


def _number(point: memoryview) -> tuple[int, list[Row]]:
    result = 0.0
    for number, value in _fields(point):
        if number in (4, 6) and isinstance(value, memoryview) and len(value) == 8:
            result = float(struct.unpack("<d" if number == 4 else "<q", value)[0])
    return 7, [("", (), result)]


def _histogram(point: memoryview) -> tuple[int, list[Row]]:
    counts: list[int] = []
    bounds: list[float] = []
    for number, value in _fields(point):
        if number == 6 and isinstance(value, memoryview):
            counts += _eights("Q", value)
        elif number == 7 and isinstance(value, memoryview):
            bounds += _eights("d", value)
    if counts and len(counts) != len(bounds) + 1:
        raise ValueError(f"a histogram of {len(counts)} buckets with {len(bounds)} bounds")
    texts = [*map(str, bounds), "+Inf"]
    buckets = [("_bucket", (("le", text),), float(sum_)) for text, sum_ in zip(texts, accumulate(counts), strict=False)]
    return 9, [*_count_and_sum(point), *buckets]


def _exponential_histogram(point: memoryview) -> tuple[int, list[Row]]:
    return 1, _count_and_sum(point)


def _summary(point: memoryview) -> tuple[int, list[Row]]:
    rows = _count_and_sum(point)
    for number, value in _fields(point):
        if number == 6 and isinstance(value, memoryview):
            parts = {n: _eights("d", part)[0] for n, part in _fields(value) if isinstance(part, memoryview)}
            rows.append(("", (("quantile", str(parts.get(1, 0.0))),), parts.get(2, 0.0)))
    return 7, rows


def _count_and_sum(point: memoryview) -> list[Row]:
    parts = {n: value for n, value in _fields(point) if n in (4, 5) and isinstance(value, memoryview)}
    rows: list[Row] = [("_count", (), float(_eights("Q", parts[4])[0]) if 4 in parts else 0.0)]
    return [*rows, ("_sum", (), _eights("d", parts[5])[0])] if 5 in parts else rows


def _eights(kind: str, data: memoryview) -> tuple[Any, ...]:
    """Return the numbers of eight bytes each."""
    if not data or len(data) % 8:
        raise ValueError(f"numbers of eight bytes in {len(data)} bytes")
    return struct.unpack(f"<{len(data) // 8}{kind}", data)


SUM = 7
READERS = {5: _number, SUM: _number, 9: _histogram, 10: _exponential_histogram, 11: _summary}
WITH_TEMPORALITY = frozenset({SUM, 9, 10})


def _labels(leaf: memoryview, attributes: int) -> Labels:
    """Return the attributes as texts, at most 16 of them; those of other types than text, number and bool are left out."""
    labels: list[tuple[str, str]] = []
    for number, attribute in _fields(leaf):
        if number == attributes and isinstance(attribute, memoryview) and len(labels) < LABELS_MAX:
            parts = dict(_fields(attribute))
            key, value = parts.get(1), parts.get(2)
            if isinstance(key, memoryview) and isinstance(value, memoryview):
                text = next((_text(kind, found) for kind, found in _fields(value) if kind in (1, 2, 3, 4)), None)
                if text is not None:
                    labels.append((bytes(key).decode()[:NAME_LENGTH_MAX], text[:LABEL_LENGTH_MAX]))
    return tuple(labels)


def _text(kind: int, value: Value) -> str:
    """Return the text of an AnyValue: 1 is a string, 2 a bool, 3 a signed integer, 4 a double."""
    if isinstance(value, memoryview):
        if kind == 1:
            return bytes(value).decode()
        if kind == 4 and len(value) == 8:
            return str(struct.unpack("<d", value)[0])
        raise ValueError("an attribute's value has another type than its field")
    if kind == 2:
        return str(bool(value))
    return str(value - (1 << 64) if value >> 63 else value)


def _leaf(data: memoryview) -> memoryview:
    if len(data) > LEAF_BYTES_MAX:
        raise ValueError(f"a point or resource of {len(data)} bytes")
    return data


def _nested(data: memoryview, number: int, turn: Turn) -> Iterator[memoryview | None]:
    """Yield the messages of one field, and None where a turn of the event loop ends."""
    for found, value in _fields(data):
        if turn.spend(POINT_COST if found == number else 1):
            yield None
        if found == number and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the fields of one protobuf message: numbers of varints as integers, everything else as its bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        start = position
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, start = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"a field of wire type {wire_type}")
        position = start + size
        if not number or position > len(data):
            raise ValueError("a field that is cut off, or has no number")
        yield number, data[start:position]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("a number that is cut off, or too long")
