"""The verbs of a cluster for tests in other languages, with their arguments and results as JSON.

The table lists the methods; their fields come from the methods' signatures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple

from ottla.client.failures import did_you_mean
from ottla.testing.cluster import Cluster
from ottla.testing.errors import InvalidFault, WrongUse, in_range
from ottla.testing.spoiled import Strikes

#: JavaScript does not represent larger numbers exactly.
INTEGER_MAX = (1 << 53) - 1
ITEMS_MAX = 1_000
LOG_BYTES_MAX = 256 * 1024
#: The longest wait of a request: beyond it a client's own timeout has ended it.
WAIT_SECONDS_MAX = 300
#: This many `fail_next` calls are remembered, the newest ones.
STRIKES_KEPT_MAX = 1_000

#: The types of arguments, by the annotations of the methods.
KINDS = {
    "int": "integer",
    "int | None": "integer",
    "float": "number",
    "float | None": "number",
    "bool": "boolean",
    "str": "string",
    "ApiKey | str | int": "name or number",
    "ErrorCode | str | int": "name or number",
    "Sequence[int]": "list of integers",
    "Mapping[str, str] | None": "object of strings",
}
#: Arguments that only Python has: a seed may be the path of a file.
LEFT_OUT = frozenset({"self", "seed"})


class UnknownVerb(WrongUse):
    """There is no verb with that name."""


class InvalidArguments(WrongUse):
    """A verb has other arguments, or arguments of other types."""


class VerbField(NamedTuple):
    """An argument of a verb. If it is not required, its default is the method's."""

    name: str
    kind: str
    required: bool
    default: Any
    #: Whether the method takes it as several arguments (`*args`).
    spread: bool


class Verb(NamedTuple):
    """A method of a cluster, and the name of its result in the response."""

    name: str
    result: str | None
    run: Callable[..., Any]
    fields: tuple[VerbField, ...]
    does: str
    #: A verb that changes the cluster waits until another such verb has ended.
    changes: bool

    def row(self) -> dict[str, object]:
        """Return its description for people."""
        fields = {
            each.name: {"type": each.kind} | ({"required": True} if each.required else {"default": each.default})
            for each in self.fields
        }
        return {"verb": self.name, "does": self.does, "fields": fields, "result": self.result}


class RemoteCluster:
    """A cluster through its verbs. Their results are JSON."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._strikes: dict[str, Strikes] = {}
        self._numbers = count(1)
        self.verbs = {
            name: _verb(name, result, getattr(self, name, None) or getattr(cluster, name), name not in READING)
            for name, result in RESULTS.items()
        }

    def verb(self, name: str) -> Verb:
        """Return a verb. Raises UnknownVerb if there is none with that name; the message has a similar name."""
        if name not in self.verbs:
            near = did_you_mean(name, self.verbs)
            raise UnknownVerb(f"there is no verb {name[:80]!r}", near or "GET / lists all verbs with their fields")
        return self.verbs[name]

    # -- Verbs whose results are other ones than in Python

    def fail_next(self, *given: Any, **named: Any) -> str:
        strikes = self._cluster.fail_next(*given, **named)
        number = str(next(self._numbers))
        self._strikes[number] = strikes
        if len(self._strikes) > STRIKES_KEPT_MAX:
            del self._strikes[next(iter(self._strikes))]
        return number

    def strikes_left(self, strikes: str) -> int:
        """Return how many requests a `fail_next` will still answer with its error."""
        if strikes not in self._strikes:
            raise InvalidFault(f"fail_next has not returned {strikes[:80]!r}", "take what it returned as `strikes`")
        return self._strikes[strikes].left

    def status(self) -> dict[str, object]:
        """Return the nodes, their addresses and states, and the time by their clocks."""
        cluster = self._cluster
        nodes = [
            {
                "id": each,
                "address": cluster.address(each),
                "running": cluster.is_running(each),
                "paused": cluster.is_paused(each),
            }
            for each in cluster.nodes
        ]
        return {"bootstrap": cluster.bootstrap, "time_ms": cluster.time_ms, "nodes": nodes}

    def log(self, node_id: int | None = None) -> str:
        """Return the end of the node's log output."""
        return self._cluster.log(node_id)[-LOG_BYTES_MAX:]

    def wait_isr(self, topic: str, size: int | None = None, seconds: float = 30) -> float:
        """Wait until every partition has `size` replicas in sync (all of them by default). Return the seconds it took."""
        return self._cluster.wait_isr(topic, size, in_range("seconds", seconds, 0, WAIT_SECONDS_MAX))


#: Each verb, and the name of its result in the response.
RESULTS: dict[str, str | None] = {
    "status": "status",
    **dict.fromkeys(("kill", "pause", "resume", "stop"), None),
    **dict.fromkeys(("start", "restart"), "seconds"),
    **dict.fromkeys(("partition", "isolate", "latency", "bandwidth"), None),
    **dict.fromkeys(("advance", "skew_clock", "disk_full", "slow_disk"), None),
    "fail_next": "strikes",
    "strikes_left": "left",
    **dict.fromkeys(("delay", "versions", "heal", "restore"), None),
    "topic": "topic",
    "add_user": "settings",
    "leaders": "partitions",
    "isr": "partitions",
    "wait_isr": "seconds",
    "log": "log",
}
READING = frozenset({"status", "strikes_left", "leaders", "isr", "wait_isr", "log"})
#: Only Python has the arguments of these.
NO_FIELDS = frozenset({"restore"})


def _verb(name: str, result: str | None, run: Callable[..., Any], changes: bool) -> Verb:
    known = getattr(Cluster, name, run)  # its signature: one of `RemoteCluster` may take what it is given
    parameters = inspect.signature(run if name in READING else known).parameters.values()
    fields = tuple(
        VerbField(
            each.name,
            f"list of {KINDS[each.annotation]}s" if each.kind is each.VAR_POSITIONAL else KINDS[each.annotation],
            each.default is each.empty and each.kind is not each.VAR_POSITIONAL,
            [] if each.kind is each.VAR_POSITIONAL else each.default,
            each.kind is each.VAR_POSITIONAL,
        )
        for each in parameters
        if each.name not in LEFT_OUT and name not in NO_FIELDS
    )
    does = (inspect.getdoc(known) or "").partition("\n\n")[0].replace("\n", " ")
    return Verb(name, result, run, fields, does, changes)


def perform(verb: Verb, arguments: object) -> dict[str, object]:
    """Run the verb with arguments of JSON, and return its result by its name.

    Raises:
        InvalidArguments: the verb has other arguments.
    """
    given, spread = _checked(verb, arguments)
    before = [given.pop(field.name) for field in verb.fields if spread and field.required]
    outcome = verb.run(*before, *spread, **given)
    return {} if verb.result is None else {verb.result: outcome}


def _checked(verb: Verb, arguments: object) -> tuple[dict[str, Any], list[Any]]:
    """Return the arguments by name, and those that the method takes as `*args`."""
    fields = {field.name: field for field in verb.fields}
    listed = f"its fields are {', '.join(fields)}" if fields else "it has no fields"
    if not isinstance(arguments, dict):
        raise InvalidArguments(f"the arguments of {verb.name} are not an object of JSON", listed)
    for name in arguments:
        if name not in fields:
            raise InvalidArguments(f"{verb.name} has no field {name[:80]!r}", did_you_mean(name, fields) or listed)
    for name, field in fields.items():
        if field.required and name not in arguments:
            raise InvalidArguments(f"{verb.name} needs the field {name!r}", f"it is of the type {field.kind}")
        if (
            name in arguments
            and not (field.default is None and arguments[name] is None)
            and not _is(field.kind, arguments[name])
        ):
            raise InvalidArguments(
                f"the field {name!r} of {verb.name} is no {field.kind}",
                f"give one as JSON, such as {EXAMPLES[field.kind]}",
            )
    spread = next((field.name for field in verb.fields if field.spread), "")
    return {name: value for name, value in arguments.items() if name != spread}, list(arguments.get(spread, ()))


EXAMPLES = {
    "integer": "2",
    "number": "0.5",
    "boolean": "true",
    "string": '"orders"',
    "name or number": '"Produce"',
    "list of integers": "[1, 2]",
    "list of strings": '["write topic:orders"]',
    "object of strings": '{"retention.ms": "1000"}',
}


def _is(kind: str, value: object) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INTEGER_MAX
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= INTEGER_MAX
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "name or number":
            return isinstance(value, str) or _is("integer", value)
        case "object of strings":
            return isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
    return isinstance(value, list) and len(value) <= ITEMS_MAX and all(_is(kind[8:-1], each) for each in value)
