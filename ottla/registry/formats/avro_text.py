"""Avro's schemas as text: the form in which Java's library prints them, and Confluent's normalized form.

Java's form is the identity of a schema: names before fields, a namespace where it changes, a definition once and its name from
then on, primitive types as words. Confluent's registry finds the same text in the topic, before this one or after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED = frozenset(("record", "error", "enum", "fixed"))
#: Attributes with a meaning of their own; all others are properties, which are kept as they are.
RESERVED = frozenset(("type", "name", "namespace", "doc", "fields", "aliases", "items", "values", "symbols", "size"))
FIELD_RESERVED = frozenset(("type", "name", "doc", "default", "order", "aliases"))
Node = Any  # what JSON can hold


def dump(value: object) -> str:
    """Return JSON as Java's libraries write it: without spaces, and not escaped to ASCII."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def full_name(node: Mapping[str, Any], space: str) -> str:
    """Return the name of a definition with its namespace."""
    name = str(node.get("name", ""))
    if "." in name:
        return name
    inner = node.get("namespace", space)
    return f"{inner}.{name}" if inner else name


def definitions(node: Node, space: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the named definitions of a schema, each with its full name and a namespace of its own."""
    if isinstance(node, list):
        for branch in node:
            yield from definitions(branch, space)
    elif isinstance(node, dict):
        kind = node.get("type")
        if isinstance(kind, str) and kind in NAMED:
            name = full_name(node, space)
            space = name.rpartition(".")[0]
            yield name, {**node, "namespace": space}
            for row in node.get("fields") or ():
                yield from definitions(row.get("type"), space)
        elif kind == "array":
            yield from definitions(node.get("items"), space)
        elif kind == "map":
            yield from definitions(node.get("values"), space)
        elif not isinstance(kind, str):
            yield from definitions(kind, space)


def resolved(text: str, dependencies: Mapping[str, str]) -> Node:
    """Return the JSON of a schema with the definitions of all that it refers to.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, RecursionError: the text is no schema.
    """
    known: dict[str, Node] = {}
    for row in dependencies.values():
        known.update(definitions(json.loads(row)))
    return JavaPrinter(known).form(json.loads(text))


class JavaPrinter:
    """Prints a schema as Java's library does. Names in `inlined` are printed with their definition, once."""

    def __init__(self, inlined: Mapping[str, Node] | None = None) -> None:
        self._inlined = dict(inlined or {})
        self._defined: set[str] = set()

    def form(self, node: Node, space: str = "") -> Node:
        """Return the JSON that is printed."""
        if isinstance(node, str):
            return self._reference(node, space)
        if isinstance(node, list):
            return [self.form(branch, space) for branch in node]
        kind = node["type"]
        if not isinstance(kind, str):
            return self.form(kind, space)
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
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._inlined and full not in self._defined:
            return self.form(self._inlined[full], space)
        inner, _, simple = full.rpartition(".")
        return simple if inner == space else full

    def _named(self, node: Mapping[str, Any], kind: str, space: str) -> Node:
        full = full_name(node, space)
        if full in self._defined:
            return self._reference(full, space)
        self._defined.add(full)
        inner, _, simple = full.rpartition(".")
        made: dict[str, Any] = {"type": kind, "name": simple}
        if inner != space:
            made["namespace"] = inner
        if node.get("doc") is not None:
            made["doc"] = node["doc"]
        reserved = RESERVED
        if kind == "enum":
            made["symbols"] = node["symbols"]
            reserved = reserved | {"default"}
            if "default" in node:
                made["default"] = node["default"]
        elif kind == "fixed":
            made["size"] = node["size"]
        else:
            made["fields"] = [self._field(row, inner) for row in node["fields"]]
        made.update((key, value) for key, value in node.items() if key not in reserved)
        if node.get("aliases"):
            made["aliases"] = list(node["aliases"])
        return made

    def _field(self, row: Mapping[str, Any], space: str) -> Node:
        made: dict[str, Any] = {"name": row["name"], "type": self.form(row["type"], space)}
        if row.get("doc") is not None:
            made["doc"] = row["doc"]
        if "default" in row:
            made["default"] = row["default"]
        if row.get("order", "ascending") != "ascending":
            made["order"] = row["order"]
        if row.get("aliases"):
            made["aliases"] = list(row["aliases"])
        made.update((key, value) for key, value in row.items() if key not in FIELD_RESERVED)
        return made


class NormalPrinter:
    """Prints Confluent's normalized form: full names, attributes in a fixed order, properties and aliases sorted."""

    def __init__(self, known: frozenset[str]) -> None:
        """Make a printer. `known`: full names of referenced definitions, which stay references."""
        self._defined = set(known)

    def form(self, node: Node, space: str = "") -> Node:
        """Return the JSON that is printed."""
        if isinstance(node, str):
            return node if node in PRIMITIVES or "." in node or not space else f"{space}.{node}"
        if isinstance(node, list):
            return [self.form(branch, space) for branch in node]
        kind = node["type"]
        if not isinstance(kind, str):
            return self.form(kind, space)
        if kind in NAMED:
            return self._named(node, kind, space)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {"type": kind, inner: self.form(node[inner], space), **self._properties(node)}
        if kind not in PRIMITIVES:
            return self.form(kind, space)
        properties = self._properties(node)
        return {"type": kind, **properties} if properties else kind

    def _named(self, node: Mapping[str, Any], kind: str, space: str) -> Node:
        full = full_name(node, space)
        if full in self._defined:
            return full
        self._defined.add(full)
        inner = full.rpartition(".")[0]
        made: dict[str, Any] = {"name": full, "type": "record" if kind == "error" else kind}
        if kind == "enum":
            made["symbols"] = node["symbols"]
        elif kind == "fixed":
            made["size"] = node["size"]
        else:
            made["fields"] = [self._field(row, inner) for row in node["fields"]]
        properties = self._properties(node)
        made.update((key, properties.pop(key)) for key in ("logicalType", "precision", "scale") if key in properties)
        if node.get("doc"):
            made["doc"] = node["doc"]
        if node.get("aliases"):
            made["aliases"] = sorted(
                name if "." in name or not inner else f"{inner}.{name}" for name in node["aliases"]
            )
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
            made["default"] = sorted_keys(row["default"])
        return made | {key: sorted_keys(row[key]) for key in sorted(row) if key not in FIELD_RESERVED}

    @staticmethod
    def _properties(node: Mapping[str, Any]) -> dict[str, Any]:
        found = {key: sorted_keys(node[key]) for key in sorted(node) if key not in RESERVED}
        first = {
            key: found.pop(key)
            for key in ("logicalType", "precision", "scale")
            if key in found and "logicalType" in node
        }
        if first.get("scale") == 0:
            del first["scale"]
        return first | found


def sorted_keys(value: Node) -> Node:
    """Return JSON with the keys of all objects in their order."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(row) for row in value] if isinstance(value, list) else value
