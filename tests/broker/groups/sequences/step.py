"""A sequence of requests as data: requests in words, which each side resolves by its earlier answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import fields


class Step(NamedTuple):
    """A verb, a member (or `-`), and options; `str(step)` is the step as a line."""

    verb: str
    member: str
    options: Mapping[str, str]

    def __str__(self) -> str:
        return " ".join([self.verb, self.member, *(f"{name}={value}" for name, value in self.options.items())])

    @classmethod
    def read(cls, line: str) -> Step:
        verb, member, *options = line.split(" ")
        return cls(verb, member, dict(option.split("=", 1) for option in options))


@dataclass(frozen=True, eq=False)
class Sequence:
    """A sequence of steps. It has topics of its own (`has_own_topics`) if it changes topics; others share theirs. `configs` are
    those of the group.
    """

    kind: str
    steps: tuple[Step, ...]
    has_own_topics: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def head(self) -> str:
        configs = [f"{name}={value}" for name, value in self.configs.items()]
        return " ".join(["sequence", self.kind, "own" if self.has_own_topics else "shared", *configs])

    def of(self, steps: Iterable[Step]) -> Sequence:
        return Sequence(self.kind, tuple(steps), self.has_own_topics, self.configs)

    @property
    def waits(self) -> bool:
        return any(step.verb == "jump" for step in self.steps)


#: The beginning of an answer's line in a file of sequences.
ANSWER = "    "


def written(sequence: Sequence, answers: Iterable[str]) -> list[str]:
    lines = [sequence.head]
    for step, answer in zip(sequence.steps, answers, strict=True):
        lines += [str(step), ANSWER + answer]
    return lines


def read(lines: Iterable[str]) -> Iterator[tuple[Sequence, list[str]]]:
    head, steps, answers = "", [], []
    for line in [*lines, "sequence end"]:
        if line.startswith("sequence "):
            if head:
                _, kind, own, *configs = head.split(" ")
                pairs = dict(config.split("=", 1) for config in configs)
                yield Sequence(kind, tuple(map(Step.read, steps)), own == "own", pairs), answers
            head, steps, answers = line, [], []
        elif line.startswith(ANSWER):
            answers.append(line[len(ANSWER) :])
        else:
            steps.append(line)


# ---- names


def actual(name: str, owner: str) -> str:
    """Return the name of a topic or group of one sequence (or of `all`)."""
    return f"{name}_{owner}_"


def member_id(member: str) -> str:
    """Return a UUID, which share sessions want. Java's hash maps of any size hold those of a to d in this order."""
    return f"memberxxxxxxxxxxxba{member}AA"


def common(text: str) -> str:
    """Return the response without the owner's name, and without a library's text about a regular expression."""
    text = re.sub(r"_(?:\d+|all)_", "", text)
    text = re.sub(member_id("(.)"), r"\1", text)
    return re.sub(r"(is not a valid regular expression: ).*", r"\1...", text)


# ---- answers

#: Fields that are not compared: ports, times (Ottla lets members that wait for partitions send heartbeats sooner), and others.
LEFT_OUT = frozenset(
    {"throttle_time_ms", "heartbeat_interval_ms", "node_endpoints", "client_id", "client_host", "authorized_operations"}
)
#: Lists whose order is that of Java's hash maps and sets.
UNORDERED = frozenset(
    {
        "members",
        "topic_partitions",
        "subscribed_topic_names",
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "groups",
        "topics",
        "partitions",
        "responses",
        "partitions_by_user_endpoint",
        "active_partitions",
        "standby_partitions",
    }
)


class Rendering:
    """All fields of a message that are not at their defaults, without those that differ from run to run."""

    left_out: frozenset[str] = LEFT_OUT

    def __init__(self, topic_names: Mapping[bytes, str]) -> None:
        self.topic_names = topic_names

    def __call__(self, message: Any) -> str:
        return self._struct(message)[1:-1]

    def _struct(self, message: Any) -> str:
        parts = []
        for each in fields(type(message)):
            value = getattr(message, each.name)
            if each.name not in self.left_out and value not in (None, 0, "", []):
                parts.append(f"{each.name}={self.shown(value, each.name)}")
        return "{" + " ".join(parts) + "}"

    def shown(self, value: Any, name: str) -> str:
        if isinstance(value, bytes | bytearray | memoryview):
            value = bytes(value)
            return self.topic_names.get(value, f"id:{any(value)}") if len(value) == 16 else self.bytes_shown(value)
        if isinstance(value, list):
            items = [self.shown(item, name) for item in value] if value and not isinstance(value[0], int) else value
            items = sorted(items) if name in UNORDERED else items
            return "[" + ",".join(map(str, items)) + "]"
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if isinstance(value, str):
            return repr(self.named(value))
        return str(value) if isinstance(value, bool | int | None) else self._struct(value)

    def bytes_shown(self, value: bytes) -> str:
        return f"{len(value)}B"

    def named(self, text: str) -> str:
        return common(text)
