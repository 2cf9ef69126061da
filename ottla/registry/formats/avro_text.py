"""Avro's schemas as text: the form that Java's library prints, and Confluent's normalized form.

Java's form is the identity of a schema: names before fields, a namespace where it changes, a definition once and its name from
then on, primitive types as words. Confluent's registry writes the same text to the topic, so that either registry can follow
the other.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ottla.registry.formats.java_json import double_text, dump, loads, sorted_keys

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
RECORDS = frozenset(("record", "error"))
NAMED = RECORDS | frozenset(("enum", "fixed"))
#: Attributes with their own meaning. All others are properties, which are kept as they are.
RESERVED = frozenset(("type", "name", "namespace", "doc", "fields", "aliases", "items", "values", "symbols", "size"))
FIELD_RESERVED = frozenset(("type", "name", "doc", "default", "order", "aliases"))
#: A definition with such a name is referred to by its full name; otherwise the name would mean the type.
TYPES = PRIMITIVES | NAMED | frozenset(("array", "map", "union"))
#: The logical types of Java's library besides decimal, and the types that can have them.
LOGICAL = {
    **dict.fromkeys(("date", "time-millis"), ("int",)),
    **dict.fromkeys(
        (
            "time-micros",
            *(f"{zone}timestamp-{unit}s" for zone in ("", "local-") for unit in ("milli", "micro", "nano")),
        ),
        ("long",),
    ),
    "uuid": ("string",),
    "big-decimal": ("bytes",),
}
#: The texts that Java's Double.valueOf accepts, except hexadecimal numbers.
_JAVA_DOUBLE = re.compile(r"\s*([+-]?)(?:(NaN|Infinity)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?)\s*", re.ASCII)
Node = Any  # what JSON can hold


def full_name(node: Mapping[str, Any], space: str) -> str:
    """Return the name of a definition with its namespace."""
    name = node["name"]
    if not isinstance(name, str):
        raise KeyError("name")
    inner = node.get("namespace")
    return qualified(name, inner if isinstance(inner, str) else space)


def qualified(name: str, space: str) -> str:
    """Return a name with the namespace, unless the name has one itself. `.A` is A without a namespace."""
    if "." in name:
        return name if name.rfind(".") else name[1:]
    return f"{space}.{name}" if space else name


def referred(name: str, space: str, known: Collection[str]) -> str:
    """Return the full name for a reference: in its namespace, or without one if only that name is known."""
    full = f"{space}.{name}" if space and "." not in name else name
    return name if full not in known and name in known else full


def names_of(node: Mapping[str, Any], space: str) -> list[str]:
    """Return the aliases of a definition as full names, each once.

    Raises:
        TypeError: the aliases are no texts.
    """
    return [*dict.fromkeys(qualified(name, space) for name in aliases_of(node))]


def aliases_of(node: Mapping[str, Any]) -> list[str]:
    """Return the aliases of a definition or field as they are written.

    Raises:
        TypeError: the aliases are no texts.
    """
    found = node.get("aliases", [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"aliases are no array of texts: {dump(found)[:100]}")
    return [*dict.fromkeys(found)]


def default_of(row: Mapping[str, Any], kind: Node) -> Node:
    """Return the default of a field. As in Java's library, a text with a number is also a valid default of a float or double."""
    value = row["default"]
    if not isinstance(value, str) or (kind.get("type") if isinstance(kind, dict) else kind) not in ("float", "double"):
        return value
    found = _JAVA_DOUBLE.fullmatch(value)
    if found is None:
        return value
    sign, name, number = found.groups()
    made = float(f"{sign}{name or number}")
    return made if math.isfinite(made) else double_text(made)


def definitions(node: Node, space: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the named definitions of a schema, each with its full name and an explicit namespace."""
    if isinstance(node, list):
        for branch in node:
            yield from definitions(branch, space)
    elif isinstance(node, dict):
        kind = node.get("type")
        if isinstance(kind, str) and kind in NAMED:
            name = full_name(node, space)
            space = name.rpartition(".")[0]
            yield name, {**node, "namespace": space}
            for row in node["fields"] if kind in RECORDS else ():
                yield from definitions(row["type"], space)
        elif kind == "array":
            yield from definitions(node["items"], space)
        elif kind == "map":
            yield from definitions(node["values"], space)


def resolved(text: str, dependencies: Mapping[str, str]) -> Node:
    """Return the JSON of a schema together with the definitions that it refers to.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, RecursionError: the text is no schema.
    """
    known: dict[str, Node] = {}
    for row in dependencies.values():
        known.update(definitions(loads(row)))
    return JavaPrinter(known).form(loads(text))


class JavaPrinter:
    """Prints a schema as Java's library does.

    Names in `inlined` are printed with their definitions at the first place where they occur. `known` are names that are
    defined elsewhere; only the names are printed.
    """

    def __init__(self, inlined: Mapping[str, Node] | None = None, known: Collection[str] = ()) -> None:
        self._inlined = dict(inlined or {})
        self._defined: set[str] = set()
        self._known = {*known, *self._inlined}

    def form(self, node: Node, space: str = "") -> Node:
        """Return the JSON that is printed."""
        if isinstance(node, str):
            return self._reference(node, space)
        if isinstance(node, list):
            return [self.form(branch, space) for branch in node]
        kind = node["type"]
        if not isinstance(kind, str):
            raise TypeError(f"No type: {dump(node)[:1000]}")
        if kind in NAMED:
            return self._named(node, kind, space)
        properties = {key: value for key, value in node.items() if key not in RESERVED}
        if kind == "array":
            return {"type": "array", "items": self.form(node["items"], space), **properties}
        if kind == "map":
            return {"type": "map", "values": self.form(node["values"], space), **properties}
        if kind not in PRIMITIVES:
            return self._reference(kind, space)
        return {"type": kind, **properties} if properties else kind

    def _reference(self, name: str, space: str) -> Node:
        if name in PRIMITIVES:
            return name
        full = referred(name, space, self._known)
        if full in self._inlined and full not in self._defined:
            return self._named(self._inlined[full], self._inlined[full]["type"], space)
        return _relative(full, space)

    def _named(self, node: Mapping[str, Any], kind: str, space: str) -> Node:
        full = full_name(node, space)
        if full in self._defined:
            return _relative(full, space)
        self._defined.add(full)
        self._known.add(full)
        inner, _, simple = full.rpartition(".")
        made: dict[str, Any] = {"type": kind, "name": simple}
        if inner != space:
            made["namespace"] = inner
        if isinstance(node.get("doc"), str):
            made["doc"] = node["doc"]
        reserved = RESERVED
        if kind == "enum":
            made["symbols"] = _list(node, "symbols")
            reserved = reserved | {"default"}
            if isinstance(node.get("default"), str):
                made["default"] = node["default"]
        elif kind == "fixed":
            made["size"] = node["size"]
        else:
            made["fields"] = [self._field(row, inner) for row in _list(node, "fields")]
        made.update((key, value) for key, value in node.items() if key not in reserved)
        if aliases := names_of(node, inner):
            made["aliases"] = [_relative(name, inner) for name in aliases]
        return made

    def _field(self, row: Mapping[str, Any], space: str) -> Node:
        made: dict[str, Any] = {"name": row["name"], "type": self.form(row["type"], space)}
        if isinstance(row.get("doc"), str):
            made["doc"] = row["doc"]
        if "default" in row:
            made["default"] = default_of(row, made["type"])
        order = row.get("order", "ascending").lower()
        if order != "ascending":
            made["order"] = order
        if aliases := aliases_of(row):
            made["aliases"] = aliases
        made.update((key, value) for key, value in row.items() if key not in FIELD_RESERVED)
        return made


def _list(node: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(node[key], list):
        raise TypeError(f"{key} are no array")
    return list(node[key])


def _relative(full: str, space: str) -> str:
    """Return a name as it is printed within a namespace."""
    inner, _, simple = full.rpartition(".")
    return simple if inner == space and simple not in TYPES else full


class NormalPrinter:
    """Prints a schema from Java's form in Confluent's normalized form: full names, attributes in a fixed order, and sorted
    properties.
    """

    def __init__(self, referenced: Mapping[str, Node], own: Mapping[str, Node]) -> None:
        """Make a printer.

        `referenced` has the definitions of references by their full names: these stay references. `own` has the schema's
        definitions.
        """
        self._defined = set(referenced)
        self._known = {**referenced, **own}

    def form(self, node: Node, space: str = "") -> Node:
        """Return the JSON that is printed."""
        if isinstance(node, str):
            return node if node in PRIMITIVES else referred(node, space, self._known)
        if isinstance(node, list):
            return [self.form(branch, space) for branch in node]
        kind = node["type"]
        if kind in NAMED:
            return self._named(node, kind, space)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {"type": kind, inner: self.form(node[inner], space), **self._properties(node)}
        properties = self._properties(node)
        return {"type": kind, **properties} if properties else kind

    def _named(self, node: Mapping[str, Any], kind: str, space: str) -> Node:
        full = full_name(node, space)
        if full in self._defined:
            return full
        self._defined.add(full)
        inner = full.rpartition(".")[0]
        made: dict[str, Any] = {"name": full, "type": "record" if kind == "error" else kind}
        if space and not inner:
            made["namespace"] = ""
        if kind == "enum":
            made["symbols"] = node["symbols"]
        elif kind == "fixed":
            made["size"] = node["size"]
        else:
            made["fields"] = [self._field(row, inner) for row in node["fields"]]
        properties = self._properties(node)
        made.update((key, properties.pop(key)) for key in _logical_names(node))
        if node.get("doc"):
            made["doc"] = node["doc"]
        if aliases := names_of(node, inner):
            made["aliases"] = sorted(aliases)
        if kind == "enum" and properties.pop("default", None) is not None:
            made["default"] = node["default"]
        return made | properties

    def _field(self, row: Mapping[str, Any], space: str) -> Node:
        made: dict[str, Any] = {"name": row["name"], "type": self.form(row["type"], space)}
        made["order"] = row.get("order", "ascending").upper()
        if row.get("doc") is not None:
            made["doc"] = row["doc"]
        if row.get("aliases"):
            made["aliases"] = sorted(row["aliases"])
        if "default" in row:
            made["default"] = sorted_keys(self._default(row["type"], row["default"], space))
        return made | {key: sorted_keys(row[key]) for key in sorted(row) if key not in FIELD_RESERVED}

    def _default(self, node: Node, value: Node, space: str) -> Node:
        """Return a default as a value of its type is printed: 1 of a double as 1.0, and a float with its shortest digits."""
        if isinstance(node, list):
            return self._default(node[0], value, space) if node else value
        if isinstance(node, str) and node not in PRIMITIVES:
            full = referred(node, space, self._known)
            node, space = self._known.get(full, "null"), full.rpartition(".")[0]
        kind = node if isinstance(node, str) else node["type"]
        if kind in ("float", "double") and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if kind == "double" else _as_float(value)
        if kind == "array" and isinstance(value, list):
            return [self._default(node["items"], row, space) for row in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._default(node["values"], row, space) for name, row in value.items()}
        if kind in RECORDS and isinstance(value, dict):
            types = {row["name"]: row["type"] for row in node["fields"]}
            inner = full_name(node, space).rpartition(".")[0]
            return {name: self._default(types.get(name, "null"), row, inner) for name, row in value.items()}
        return value

    @staticmethod
    def _properties(node: Mapping[str, Any]) -> dict[str, Any]:
        found = {key: sorted_keys(node[key]) for key in sorted(node) if key not in RESERVED}
        return {key: found.pop(key) for key in _logical_names(node)} | found


def _logical_names(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the properties of a logical type, which are printed first; none if Java's library does not know the type."""
    name, kind = node.get("logicalType"), node["type"]
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
            return ()
        if kind == "fixed" and precision > math.log10(2) * (8 * node["size"] - 1):
            return ()
        return ("logicalType", "precision", "scale") if scale else ("logicalType", "precision")
    is_known = isinstance(name, str) and (
        kind in LOGICAL.get(name, ()) or (name == "uuid" and kind == "fixed" and node["size"] == 16)
    )
    return ("logicalType",) if is_known else ()


def _as_float(value: float) -> float:
    """Return the number with the fewest digits that is the same 32-bit float, as Java's Float.toString; outside its range
    return the number itself.
    """
    (near,) = struct.unpack("f", struct.pack("f", value))
    if not math.isfinite(near):
        return float(value)
    return next(
        made
        for digits in range(1, 10)
        if struct.pack("f", made := float(f"{near:.{digits}g}")) == struct.pack("f", near)
    )
