"""Plain JSON becomes values of Avro, which is the inverse of `avro_values.py`: bytes are text of one character per byte, times
are ISO 8601, decimals text or numbers. A value of a union may stand alone, or as in Avro's own JSON under the name of its
branch: {"string": "x"}.
"""

from __future__ import annotations

import datetime
import io
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import fastavro

Node = Any  # what JSON can hold
Write = Callable[[Any], bytes]

INT_BITS = {"int": 32, "long": 64}
NAMED = ("record", "error", "enum", "fixed")
_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class NoSuchValue(ValueError):
    """The JSON is no value of the schema. The text has the place and the reason, for the user."""


def avro_writer(text: str, dependencies: Mapping[str, str]) -> Write:
    """Return a function that writes plain JSON as values of a schema.

    `dependencies` are the schemas that it needs. Each of these comes after its own dependencies.

    Raises:
        ValueError and others of fastavro: the schema is not valid.
    """
    named: dict[str, Any] = {}
    for needed in dependencies.values():
        fastavro.parse_schema(json.loads(needed), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)

    def write(value: Any) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, _AvroValues(named).of(parsed, value, "$"))
        return written.getvalue()

    return write


class _AvroValues:
    """Converts JSON, by the schema, to the objects that fastavro writes.

    Raises NoSuchValue with the place of a value that does not fit.
    """

    def __init__(self, named: Mapping[str, Node], *, of_defaults: bool = False) -> None:
        """Read defaults of a schema with `of_defaults`: there a decimal is bytes, and a time a number."""
        self._named = named
        self._of_defaults = of_defaults

    def of(self, node: Node, value: Any, at: str) -> Any:
        if isinstance(node, list):
            return self._union(node, value, at)
        if isinstance(node, str) and node in self._named:
            node = self._named[node]
        kind = node if isinstance(node, str) else node["type"]
        if not isinstance(kind, str):
            return self.of(kind, value, at)
        logical = node.get("logicalType") if isinstance(node, dict) and not self._of_defaults else None
        match kind:
            case "null":
                if value is not None:
                    raise _unfit(at, value, "null")
                return None
            case "boolean":
                return _checked(at, value, bool, "true or false")
            case "int" | "long":
                return _whole(kind, logical, value, at)
            case "float" | "double":
                return _float(value, at)
            case "string":
                return _checked(at, value, str, "a text")
            case "bytes":
                return _bytes(value, at) if logical != "decimal" else _decimal(node, value, at)
            case "fixed":
                return self._fixed(node, logical, value, at)
            case "enum":
                if value not in node["symbols"]:
                    raise _unfit(at, value, f"one of {', '.join(node['symbols'][:20])}")
                return value
            case "array":
                rows = _checked(at, value, list, "a list")
                return [self.of(node["items"], row, f"{at}[{index}]") for index, row in enumerate(rows)]
            case "map":
                found = _checked(at, value, dict, "an object")
                return {name: self.of(node["values"], row, f"{at}.{name}") for name, row in found.items()}
        return self._record(node, value, at)

    def _record(self, node: Node, value: Any, at: str) -> dict[str, Any]:
        given = _checked(at, value, dict, f"an object, a {node['name']}")
        names = [field["name"] for field in node["fields"]]
        for name in given:
            if name not in names:
                raise NoSuchValue(
                    f"{at} has a field {name!r}, and {node['name']} has {', '.join(names[:20]) or 'none'}"
                )
        made = {}
        for field in node["fields"]:
            name = field["name"]
            if name in given:
                made[name] = self.of(field["type"], given[name], f"{at}.{name}")
            elif "default" in field:
                defaults = _AvroValues(self._named, of_defaults=True)
                made[name] = defaults.of(field["type"], field["default"], f"{at}.{name}")
            else:
                raise NoSuchValue(f"{at} has no field {name!r}, which has no default")
        return made

    def _union(self, branches: list[Node], value: Any, at: str) -> Any:
        named = value if isinstance(value, dict) and len(value) == 1 else {}
        for (
            branch
        ) in branches:  # first by its name: a record with a field of that name would otherwise be taken for the value
            if self._name_of(branch) in named:
                try:
                    return self._name_of(branch), self.of(branch, named[self._name_of(branch)], at)
                except NoSuchValue:
                    break
        reasons = []
        for branch in branches:
            try:
                return self._name_of(branch), self.of(branch, value, at)
            except NoSuchValue as fault:
                reasons.append(str(fault))
        deepest = max(reasons, key=lambda text: text.partition(" ")[0].count("."), default="")
        if deepest.partition(" ")[0] != at and deepest:
            raise NoSuchValue(deepest)
        raise _unfit(at, value, f"one of {', '.join(self._name_of(branch) for branch in branches)}")

    def _name_of(self, node: Node) -> str:
        """Return the name of a branch in fastavro and in Avro's JSON: the name of a named type, or the type itself."""
        if isinstance(node, str):
            return node
        return str(node["name"] if node["type"] in NAMED else node["type"])

    def _fixed(self, node: Node, logical: str | None, value: Any, at: str) -> Any:
        if logical == "decimal":
            return _decimal(node, value, at)
        data = _bytes(value, at)
        if len(data) != node["size"]:
            raise NoSuchValue(f"{at} has {len(data)} bytes, and {node['name']} has {node['size']}")
        return data


def _checked(at: str, value: Any, kind: type, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise _unfit(at, value, wanted)
    return value


def _whole(kind: str, logical: str | None, value: Any, at: str) -> Any:
    if isinstance(value, str) and logical is not None:
        return _time(logical, value, at)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unfit(at, value, f"a whole number ({kind})")
    bound = 1 << (INT_BITS[kind] - 1)
    if not -bound <= value < bound:
        raise NoSuchValue(f"{at} is out of the range of {kind}")
    return value


def _time(logical: str, value: str, at: str) -> Any:
    try:
        if logical == "date":
            return datetime.date.fromisoformat(value)
        if logical.startswith("time-"):
            return datetime.time.fromisoformat(value)
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise _unfit(at, value, f"a {logical} as ISO 8601 or as a number") from None
    if logical.startswith("timestamp-") and moment.tzinfo is None:
        return moment.replace(tzinfo=datetime.UTC)
    return moment


def _float(value: Any, at: str) -> float:
    if isinstance(value, str) and value in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _unfit(at, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise NoSuchValue(f"{at} is out of the range of a double") from None


def _decimal(node: Node, value: Any, at: str) -> Decimal:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            raise ValueError
        made = Decimal(value if isinstance(value, str | Decimal) else str(value))
    except (ValueError, InvalidOperation):
        raise _unfit(at, value, "a decimal") from None
    if not made.is_finite():
        raise _unfit(at, value, "a decimal")
    return made


def _bytes(value: Any, at: str) -> bytes:
    text: str = _checked(at, value, str, "a text with a character per byte")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise NoSuchValue(f"{at} has a character above U+00FF, which is no byte") from None


def _unfit(at: str, value: Any, wanted: str) -> NoSuchValue:
    return NoSuchValue(f"{at} is {json.dumps(value, default=str)[:80]}, and the schema has {wanted}")
