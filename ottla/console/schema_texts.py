"""Schemas as the pages show them: a line for each part, the differences between two versions, and the topics that a subject's
name stands for.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.console.record_view import pretty_json, visible
from ottla.registry.client import AVRO, JSON_SCHEMA, PROTOBUF

KINDS = (AVRO, JSON_SCHEMA, PROTOBUF)
LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
#: What a new schema must be able to do at each level of compatibility, in words for users.
LEVEL_TEXTS = {
    "BACKWARD": "consumers with the new schema read what the latest version has written",
    "BACKWARD_TRANSITIVE": "consumers with the new schema read what any version has written",
    "FORWARD": "consumers with the latest version read what the new schema writes",
    "FORWARD_TRANSITIVE": "consumers with any version read what the new schema writes",
    "FULL": "the new schema and the latest version read each other's values",
    "FULL_TRANSITIVE": "the new schema and all versions read each other's values",
    "NONE": "nothing is checked",
}
#: A longer text is cut before it is shown.
TEXT_CHARS_MAX = 256 * 1024
#: If two texts differ in more lines than this, all of these lines are shown as replaced: the time of a comparison grows with
#: the product of their numbers.
DIFFERENT_LINES_MAX = 600
#: Equal lines that are shown around a difference.
CONTEXT_LINES = 3
#: The suffixes of TopicNameStrategy, which stock serializers use unless another strategy is set.
SUFFIXES = ("-key", "-value")
_PROTO_PACKAGE = re.compile(r"^[ \t]*package[ \t]+([\w.]+)[ \t]*;", re.MULTILINE)
_PROTO_MESSAGE = re.compile(r"^[ \t]*message[ \t]+(\w+)", re.MULTILINE)


class SchemaVersion(NamedTuple):
    """A version of a subject. `references` are name, subject and version of each schema that it needs."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()


class DiffLine(NamedTuple):
    """A line of a comparison. Its mark is "+", "-", " ", or "…" in place of equal lines that were left out."""

    mark: str
    text: str


def topics_of(subject: str, record: str | None, topics: Iterable[str]) -> list[str]:
    """Return the topics whose keys or values the subject may belong to, by its name.

    TopicNameStrategy names a subject by the topic, `orders-value`; TopicRecordNameStrategy by the topic and the name of the record,
    `orders-shop.Order`. With RecordNameStrategy the name is the record's alone: any topic may have it.
    """
    name = subject.rpartition(":")[2]
    wanted = {name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)}
    if record is not None and name.endswith(f"-{record}"):
        wanted.add(name.removesuffix(f"-{record}"))
    return sorted(wanted.intersection(topics))


def is_of_topic(subject: str, topic: str) -> bool:
    """Return whether a subject may belong to a topic: its name begins with the topic's."""
    return subject.rpartition(":")[2].startswith(f"{topic}-")


def record_name(kind: str, text: str) -> str | None:
    """Return the full name of the record in a schema, as the serializers' strategies use it; None if it has none."""
    if kind == PROTOBUF:
        message, package = _PROTO_MESSAGE.search(text), _PROTO_PACKAGE.search(text)
        return None if message is None else f"{package[1]}.{message[1]}" if package is not None else message[1]
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(root, dict):
        return None
    name, space = root.get("title" if kind == JSON_SCHEMA else "name"), root.get("namespace")
    if not isinstance(name, str) or not name:
        return None
    return f"{space}.{name}" if kind == AVRO and isinstance(space, str) and space and "." not in name else name


def shown_text(schema: SchemaVersion) -> tuple[str, bool]:
    """Return the text of a schema with a line for each of its parts, and whether it was cut.

    A schema of Protobuf already has lines.
    """
    if len(schema.text) > TEXT_CHARS_MAX:
        return visible(schema.text[:TEXT_CHARS_MAX]), True
    indented = None if schema.kind == PROTOBUF else pretty_json(schema.text, TEXT_CHARS_MAX)
    text = visible(schema.text if indented is None else indented)
    return text[:TEXT_CHARS_MAX], len(text) > TEXT_CHARS_MAX


def difference(old: str, new: str) -> list[DiffLine]:
    """Return the lines of two texts with marks at the differences, and CONTEXT_LINES around them; nothing if they are equal."""
    before, after = old.splitlines(), new.splitlines()
    if before == after:
        return []
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    old_part, new_part = before[head : len(before) - tail], after[head : len(after) - tail]
    if max(len(old_part), len(new_part)) > DIFFERENT_LINES_MAX:
        blocks = [("replace", 0, len(old_part), 0, len(new_part))]
    else:
        blocks = list(difflib.SequenceMatcher(None, old_part, new_part).get_opcodes())
    marked: list[DiffLine] = []
    for kind, old_from, old_to, new_from, new_to in blocks:
        if kind == "equal":
            marked += (DiffLine(" ", line) for line in old_part[old_from:old_to])
        else:
            marked += (DiffLine("-", line) for line in old_part[old_from:old_to])
            marked += (DiffLine("+", line) for line in new_part[new_from:new_to])
    same = [DiffLine(" ", line) for line in before]
    return list(_near([*same[:head], *marked, *same[len(before) - tail :]]))


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _near(lines: list[DiffLine]) -> Iterable[DiffLine]:
    """Yield the lines near a difference, and a mark in place of others."""
    near = bytearray(len(lines))
    for at, line in enumerate(lines):
        if line.mark != " ":
            low, high = max(0, at - CONTEXT_LINES), min(len(lines), at + CONTEXT_LINES + 1)
            near[low:high] = b"\1" * (high - low)
    skipped = False
    for at, line in enumerate(lines):
        if near[at]:
            yield line
        elif not skipped:
            yield DiffLine("…", "")
        skipped = not near[at]
