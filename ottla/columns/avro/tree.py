"""A schema of Avro as fastavro has parsed it, prepared for reading values into Arrow.

Logical types are removed: Arrow's type of the column says what a number means, and fastavro would make an object of each date
and time. Defaults become the values that they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro

from ottla.columns.batches import ColumnsError
from ottla.registry.formats.avro_text import PRIMITIVES

#: The column's type is read as the field of a record, which has the same bytes: so a union or a plain type needs no special
#: case.
ROOT, FIELD = "OttlaColumn", "value"
#: No writer has this field. Its default says which record of a union was read.
MARK = "__ottla_record"
Node = Any  # what JSON can hold


class AvroTree:
    """A schema and its named definitions. Raises ColumnsError if it is not valid, recursive, or has arrays of nothing."""

    def __init__(self, text: str) -> None:
        """Take the JSON of a schema that has all its definitions."""
        self.named: dict[str, Node] = {}
        try:
            root = {"type": "record", "name": ROOT, "fields": [{"name": FIELD, "type": json.loads(text)}]}
            self.root = fastavro.parse_schema(root, self.named)
            self._is_empty(self.top, (), {})
        except ColumnsError:
            raise
        except Exception as fault:  # the library's own errors, and those of reading JSON that is no schema
            raise ColumnsError(f"the schema is not valid: {fault or type(fault).__name__}") from None

    @property
    def top(self) -> Node:
        """Return the column's type."""
        return self.root["fields"][0]["type"]

    def kind(self, node: Node) -> str:
        """Return the name of a type, such as `record`; a list is a `union`."""
        if isinstance(node, list):
            return "union"
        if isinstance(node, str):
            return node if node in PRIMITIVES else self.kind(self.named[node])
        kind = str(node["type"])
        return "record" if kind == "error" else kind

    def definition(self, node: Node) -> Node:
        """Return the definition of a name, and anything else as it is."""
        return self.named[node] if isinstance(node, str) and node not in PRIMITIVES else node

    def _is_empty(self, node: Node, inside: tuple[str, ...], done: dict[str, bool]) -> bool:
        """Return True if values of the type may have no bytes.

        Arrays of such values are rejected: five bytes could stand for a billion items.
        """
        kind, node = self.kind(node), self.definition(node)
        match kind:
            case "null":
                return True
            case "fixed":
                return not node["size"]
            case "union":
                for branch in node:
                    self._is_empty(branch, inside, done)
            case "map":
                self._is_empty(node["values"], inside, done)
            case "array":
                if self._is_empty(node["items"], inside, done):
                    raise ColumnsError("the schema has an array whose items have no bytes", "give them a field")
            case "record":
                return self._is_empty_record(node, inside, done)
        return False

    def _is_empty_record(self, node: Node, inside: tuple[str, ...], done: dict[str, bool]) -> bool:
        name = node["name"]
        if name in inside:
            way = " -> ".join((*inside[inside.index(name) :], name))
            raise ColumnsError(f"the schema is recursive ({way}), and a column's type cannot be")
        if name not in done:
            empty = [self._is_empty(field["type"], (*inside, name), done) for field in node["fields"]]
            done[name] = all(empty)
        return done[name]

    # -- Made ready for reading

    def prune(self, names: Iterable[str]) -> None:
        """Keep only these fields of the column's record; readers skip the bytes of the others.

        Raises:
            ColumnsError: the column is no record, or lacks one of them.
        """
        branches = self.top if isinstance(self.top, list) else [self.top]
        records = [branch for branch in branches if self.kind(branch) != "null"]
        if len(records) != 1 or self.kind(records[0]) != "record":
            raise ColumnsError("its type is no record, and has no fields", "name the column alone")
        fields = self.definition(records[0])["fields"]
        known = [field["name"] for field in fields]
        if missing := [name for name in names if name not in known]:
            raise ColumnsError(f"it has no field {missing[0]}", f"its fields are {', '.join(known)}")
        fields[:] = [field for field in fields if field["name"] in {*names}]

    def strip(self) -> None:
        """Remove the logical types."""
        for definition in self.named.values():
            definition.pop("logicalType", None)
            for field in definition.get("fields", ()):
                _strip(field["type"])
        _strip(self.top)

    def set_defaults(self, marks: Mapping[str, int]) -> None:
        """Replace the JSON of defaults by values. Each record gets a mark, by its full name."""
        records = {name: node for name, node in self.named.items() if "fields" in node and name != ROOT}
        found = [
            (field, self._value(field["type"], field["default"], marks))
            for node in records.values()
            for field in node["fields"]
            if "default" in field
        ]
        for field, value in found:  # set only after all are known, because they contain each other's JSON
            field["default"] = value
        for name, number in marks.items():
            records[name]["fields"].append({"name": MARK, "type": "int", "default": number})

    def _value(self, node: Node, default: Node, marks: Mapping[str, int]) -> Any:
        """Return the value of a default, as Avro's readers read it."""
        kind, node = self.kind(node), self.definition(node)
        match kind:
            case "union":
                fitting = [branch for branch in node if (self.kind(branch) == "null") == (default is None)]
                return self._value(fitting[0], default, marks) if fitting else default
            case "bytes" | "fixed":
                return str(default).encode("latin-1")
            case "float" | "double":
                return float(default)
            case "array":
                return [self._value(node["items"], each, marks) for each in default]
            case "map":
                return {key: self._value(node["values"], each, marks) for key, each in default.items()}
            case "record":
                fields = {field["name"]: field for field in node["fields"]}
                given = {name: field["default"] for name, field in fields.items() if "default" in field} | default
                made = {
                    name: self._value(fields[name]["type"], each, marks)
                    for name, each in given.items()
                    if name in fields
                }
                return made | ({MARK: marks[node["name"]]} if node["name"] in marks else {})
        return default


def _strip(node: Node) -> None:
    if isinstance(node, list):
        for branch in node:
            _strip(branch)
    elif isinstance(node, dict):
        node.pop("logicalType", None)
        _strip(node.get("items") or node.get("values"))
