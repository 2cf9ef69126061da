"""Rules for a schema that Avro's Java library checks and its Python library does not: names, aliases, the order of fields, and
defaults.

Reference: Apache Avro 1.12.0, by what it rejects. For new schemas Confluent's registry uses its strict check of names; for
schemas that it reads, a check that allows letters of any alphabet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.registry.formats.avro_text import NAMED, PRIMITIVES, RESERVED, full_name, names_of, referred
from ottla.registry.formats.java_json import dump
from ottla.registry.formats.parsed import InvalidSchema

ORDERS = ("ascending", "descending", "ignore")
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
#: These texts are valid defaults of a float or double field.
NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
Node = Any


class AvroRules:
    """Checks a schema in Java's form.

    `known` are the definitions of all names. With `is_new` names must have ASCII letters, and each default must be a value of
    its field's type.
    """

    def __init__(self, known: Mapping[str, Node], *, is_new: bool) -> None:
        self._known = known
        self._is_new = is_new
        #: The records whose fields are being checked. No default can be a value of these.
        self._open: set[str] = set()
        #: The results for one default, by type and part of the default. With unions of records the same checks would be
        #: repeated very often.
        self._answers: dict[tuple[int, int], bool] = {}

    def check(self, node: Node, space: str = "") -> None:
        """Check a schema and all schemas inside.

        Raises:
            InvalidSchema: Java's library would reject it.
        """
        if isinstance(node, list):
            kinds = [self._kind(branch, space) for branch in node]
            if len(set(kinds)) < len(kinds):
                raise InvalidSchema(f"Duplicate in union: {dump(node)[:1000]}")
            for branch in node:
                self.check(branch, space)
        if isinstance(node, str) and node not in PRIMITIVES and referred(node, space, self._known) not in self._known:
            raise InvalidSchema(f"Undefined schema: {node}")
        if not isinstance(node, dict):
            return
        _check_properties(node)
        if node["type"] in NAMED:
            self._named(node, full_name(node, space))
        for key in ("items", "values"):
            if key in node and node["type"] in ("array", "map"):
                self.check(node[key], space)

    def _kind(self, branch: Node, space: str) -> str:
        """Return the type or the name that a branch stands for: a union may have it only once."""
        kind = branch if isinstance(branch, str) else branch["type"] if isinstance(branch, dict) else ""
        if kind in NAMED and isinstance(branch, dict):
            return full_name(branch, space)
        return kind if kind in (*PRIMITIVES, "array", "map") else referred(kind, space, self._known)

    def _named(self, node: Mapping[str, Any], full: str) -> None:
        space = full.rpartition(".")[0]
        if full in PRIMITIVES:
            raise InvalidSchema(f"Schemas may not be named after primitives: {full}")
        # An existing schema may have any namespace.
        for part in full.split(".") if self._is_new else [full.rpartition(".")[2]]:
            self._name(part)
        for alias in names_of(node, space):
            self._name(alias.rpartition(".")[2])
        for symbol in node.get("symbols", ()):
            self._name(symbol)
        if node["type"] == "enum" and node.get("default") not in (None, *node["symbols"]):
            raise InvalidSchema(f"The Enum Default: {node['default']} is not in the enum symbol set")
        if node["type"] == "fixed" and not (type(node["size"]) is int and 0 <= node["size"] <= INT_MAX):
            raise InvalidSchema(f"Invalid or no size: {node['size']}")
        self._open.add(full)
        for row in node.get("fields", ()):
            self._field(row, space)
        self._open.discard(full)

    def _name(self, name: Node) -> None:
        """Check a name without its namespace: letters, digits and underscores."""
        if not isinstance(name, str) or not name:
            raise InvalidSchema("Empty name" if name == "" else "Null name")
        last = "\x7f" if self._is_new else "\uffff"
        if not (name[0].isalpha() or name[0] == "_") or name[0] > last:
            raise InvalidSchema(f"Illegal initial character: {name}")
        if not all((letter.isalpha() or letter.isdecimal() or letter == "_") and letter <= last for letter in name):
            raise InvalidSchema(f"Illegal character in: {name}")

    def _field(self, row: Mapping[str, Any], space: str) -> None:
        self._name(row["name"])
        self.check(row["type"], space)
        if row.get("order", "ascending") not in ORDERS:
            raise InvalidSchema(f"No order of fields: {row['order']}")
        if not self._is_new or "default" not in row:
            return
        self._answers.clear()
        kind, value = row["type"], row["default"]
        is_double = (kind["type"] if isinstance(kind, dict) else kind) in ("float", "double")
        if not (is_double and value in NO_NUMBERS) and not self._is_value(kind, value, space):
            text = f"Invalid default for field {row['name']}: {dump(value)[:1000]} not a {dump(kind)[:1000]}"
            raise InvalidSchema(text)

    def _is_value(self, node: Node, value: Node, space: str) -> bool:
        """Return whether a default has the type. As in Java's library, any text is valid for enums, bytes and fixed."""
        key = (id(node), id(value))
        if key not in self._answers:
            self._answers[key] = self._is_of_type(node, value, space)
        return self._answers[key]

    def _is_of_type(self, node: Node, value: Node, space: str) -> bool:
        if isinstance(node, list):
            return any(self._is_value(branch, value, space) for branch in node)
        kind = node if isinstance(node, str) else node["type"]
        if isinstance(node, str) and kind not in PRIMITIVES:
            full = referred(kind, space, self._known)
            return full in self._known and self._is_value(self._known[full], value, space)
        match kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                bound = INT_MAX if kind == "int" else LONG_MAX
                return isinstance(value, int) and not isinstance(value, bool) and -bound - 1 <= value <= bound
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "bytes" | "string" | "fixed" | "enum":
                return isinstance(value, str)
            case "array":
                return isinstance(value, list) and all(self._is_value(node["items"], row, space) for row in value)
            case "map":
                return isinstance(value, dict) and all(
                    self._is_value(node["values"], row, space) for row in value.values()
                )
        return self._is_record(node, value, full_name(node, space))

    def _is_record(self, node: Mapping[str, Any], value: Node, full: str) -> bool:
        if not isinstance(value, dict) or full in self._open:
            return False
        space = full.rpartition(".")[0]
        for row in node["fields"]:
            # The default of an inner field is checked at that field.
            if row["name"] not in value:
                if "default" not in row:
                    return False
            elif not self._is_value(row["type"], value[row["name"]], space):
                return False
        return True


def _check_properties(node: Mapping[str, Any]) -> None:
    """Check that each whole number in a property fits a Java type."""
    waiting = [row for key, row in node.items() if key not in RESERVED]
    while waiting:
        row = waiting.pop()
        if isinstance(row, dict | list):
            waiting += row.values() if isinstance(row, dict) else row
        elif isinstance(row, int) and not -LONG_MAX - 1 <= row <= LONG_MAX:
            raise InvalidSchema(f"Can't set a property to {row}")
