"""The compatible changes of a JSON schema, by Confluent's rules, which compare content models of objects and arrays.

A property can be added if the old schema was closed, because that could not hold anything under the name; a property can be
removed if the new schema is open. In a partially open schema (patternProperties, a schema of additionalProperties) that schema
must cover the property. For anyOf, oneOf and allOf a matching between the parts of both schemas is searched.

The tables say which differences are compatible; the walk only finds them. Recursive schemas are compared by a greatest fixed
point: a pair that occurs again below itself counts as compatible, until a pass has shown that it is not.

Reference: the tests of Confluent's schema registry (json-schema-provider, diff-schema-examples and diff-combined-schema-examples),
which tests/ottla/registry has as a table of pairs and verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ottla.registry.formats.json_content import Content, content_of_array, content_of_object
from ottla.registry.formats.json_differences import (
    COMPATIBLE,
    NOT_EVALUATED,
    added_property,
    bound_changed,
    matching,
    multiple_changed,
    snake,
)
from ottla.registry.formats.json_model import JsonNode
from ottla.registry.formats.parsed import Difference

Pair = tuple[int, int]


def compare(old: JsonNode, new: JsonNode, compatible: frozenset[str] = COMPATIBLE) -> list[Difference]:
    """Return the differences of two versions of a schema, including the compatible ones."""
    known: dict[Pair, list[Difference]] = {}
    while True:
        comparison = _Comparison(compatible, known)
        comparison.pair(old, new)
        found = comparison.incompatible_pairs()
        if not comparison.assumed or found.keys() == known.keys():
            return comparison.found
        known = found


class _Comparison:
    """One pass. `known` are pairs that an earlier pass has found incompatible, with their differences."""

    def __init__(self, compatible: frozenset[str], known: dict[Pair, list[Difference]]) -> None:
        self.found: list[Difference] = []
        #: Whether a pair counted as compatible because it occurred again below itself.
        self.assumed = False
        self._compatible = compatible
        self._known = known
        self._done: dict[Pair, list[Difference]] = {}
        self._entered: set[Pair] = set()
        self._path: list[str] = []
        # The nodes whose ids are in the tables are kept alive.
        self._kept: list[JsonNode] = []

    def incompatible_pairs(self) -> dict[Pair, list[Difference]]:
        return {pair: rows for pair, rows in self._done.items() if not self._readable(rows)}

    def pair(self, old: JsonNode | None, new: JsonNode | None) -> None:
        """Compare two schemas at the present place of the walk."""
        if old is None or new is None:
            if old is not new:
                self.add("SCHEMA_ADDED" if old is None else "SCHEMA_REMOVED")
            return
        prefix = self._prefix()
        self.found += [Difference(row.kind, prefix + row.path[2:], "") for row in self._pair(old.target, new.target)]

    def _pair(self, old: JsonNode, new: JsonNode) -> list[Difference]:
        """Return the differences of a pair, with paths relative to the pair."""
        key = (id(old), id(new))
        if key in self._done:
            return self._done[key]
        if key in self._entered:
            self.assumed = self.assumed or key not in self._known
            return self._known.get(key, [])
        self._entered.add(key)
        self._kept += (old, new)
        outer, self._path = (self.found, self._path), []
        self.found = []
        try:
            self._kinds(old, new)
            self._done[key] = self.found
            return self.found
        finally:
            self.found, self._path = outer
            self._entered.discard(key)

    def _tried(self, old: JsonNode, new: JsonNode) -> tuple[list[Difference], bool]:
        """Return the differences at this place without recording them, and whether they are compatible."""
        outer, self.found = self.found, []
        self.pair(old, new)
        rows, self.found = self.found, outer
        return rows, self._readable(rows)

    def _readable(self, rows: Sequence[Difference]) -> bool:
        return all(row.kind in self._compatible for row in rows)

    def _kinds(self, old: JsonNode, new: JsonNode) -> None:
        if self._one_of_several(old, new):
            return
        if old.kind != new.kind:
            both_bytes = old.raw.get("connect.type") == new.raw.get("connect.type") == "bytes"
            if old.kind != "nothing" and new.kind != "any" and not both_bytes:
                self.add("TYPE_CHANGED")
            return
        for keyword in ("$id", "title", "description", "default"):
            if old.common(keyword) != new.common(keyword):
                self.add(f"{keyword.removeprefix('$').upper()}_CHANGED")
        compare_kind: Callable[[JsonNode, JsonNode], None] | None = {
            "string": self._strings,
            "number": self._numbers,
            "const": self._constants,
            "enum": self._enums,
            "combined": self._combined,
            "not": self._negated,
            "object": self._objects,
            "array": self._arrays,
            "reference": self._references,
        }.get(old.kind)
        if compare_kind is not None:
            compare_kind(old, new)

    def _one_of_several(self, old: JsonNode, new: JsonNode) -> bool:
        """Compare a schema with the parts of a combined one: is one part compatible with it?"""
        if old.kind != "combined" and new.kind == "combined":
            parts, several = new.parts, "SUM_TYPE_EXTENDED" if new.criterion != "allOf" else None
        elif old.kind == "combined" and new.kind != "combined":
            parts, several = old.parts, "PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else None
        else:
            return False
        if len(parts) != 1 and several is None:
            return False
        for part in parts:
            rows, readable = self._tried(old, part) if new.kind == "combined" else self._tried(part, new)
            if readable:
                self.found += rows
                if len(parts) != 1 and several is not None:
                    self.add(several)
                return True
        return False

    # -- Values --------------------------------------------------------------------------------------------------------

    def _strings(self, old: JsonNode, new: JsonNode) -> None:
        self._bounds(old, new, "maxLength", "minLength")
        was, now = old.raw.get("pattern"), new.raw.get("pattern")
        if was != now:
            how = "ADDED" if was is None else "REMOVED" if now is None else "CHANGED"
            self.add(f"PATTERN_{how}", "pattern")

    def _numbers(self, old: JsonNode, new: JsonNode) -> None:
        self._bounds(old, new, "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
        was, now = old.number("multipleOf"), new.number("multipleOf")
        if was != now:
            self.add(multiple_changed(was, now), "multipleOf")
        if old.is_integer != new.is_integer:
            self.add("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED")

    def _bounds(self, old: JsonNode, new: JsonNode, *keywords: str) -> None:
        for keyword in keywords:
            was, now = old.number(keyword), new.number(keyword)
            if was != now:
                self.add(bound_changed(keyword, was, now), keyword)

    def _references(self, old: JsonNode, new: JsonNode) -> None:
        if old.raw["$ref"] != new.raw["$ref"]:
            self.add("TYPE_CHANGED")

    def _constants(self, old: JsonNode, new: JsonNode) -> None:
        if not _equal(old.raw["const"], new.raw["const"]):
            self.add("ENUM_ARRAY_CHANGED", "const")

    def _enums(self, old: JsonNode, new: JsonNode) -> None:
        was, now = list(old.raw["enum"]), list(new.raw["enum"])
        lost = any(not any(_equal(each, other) for other in now) for each in was)
        gained = any(not any(_equal(each, other) for other in was) for each in now)
        if lost or gained:
            self.add(
                "ENUM_ARRAY_CHANGED" if lost and gained else "ENUM_ARRAY_NARROWED" if lost else "ENUM_ARRAY_EXTENDED",
                "enum",
            )

    # -- Sums, products and negations ----------------------------------------------------------------------------------

    def _combined(self, old: JsonNode, new: JsonNode) -> None:
        if old.criterion != new.criterion:
            single_old, single_new = len(old.parts) == 1, len(new.parts) == 1
            extended = (
                new.criterion == "anyOf"
                or (single_old and (single_new or new.criterion == "oneOf"))
                or (single_new and old.criterion == "allOf")
            )
            self.add("COMBINED_TYPE_EXTENDED" if extended else "COMBINED_TYPE_CHANGED")
            if not extended:
                return
        olds, news = _distinct(old.parts), _distinct(new.parts)
        if len(olds) < len(news):
            self.add("PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED")
        elif len(olds) > len(news):
            self.add("PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED")
        edges: dict[int, dict[int, list[Difference]]] = {}
        for index, part in enumerate(olds):
            with self._at(f"{old.criterion}/{index}"):
                for other, candidate in enumerate(news):
                    rows, readable = self._tried(part, candidate)
                    if readable:
                        edges.setdefault(index, {})[other] = rows
        matched = matching({index: list(row) for index, row in edges.items()})
        for index, other in sorted(matched.items()):
            self.found += edges[index][other]
        if len(matched) < min(len(olds), len(news)):
            self.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")

    def _negated(self, old: JsonNode, new: JsonNode) -> None:
        with self._at("not"):
            was, now = old.child_or_boolean("not"), new.child_or_boolean("not")
            readable = was is None or now is None or self._tried(now, was)[1]
            self.add("NOT_TYPE_NARROWED" if readable else "NOT_TYPE_EXTENDED")

    # -- Objects -------------------------------------------------------------------------------------------------------

    def _objects(self, old: JsonNode, new: JsonNode) -> None:
        olds, news = old.children("properties"), new.children("properties")
        with self._at("required"):
            for name in olds:
                if name in news and (name in old.required) != (name in new.required):
                    with self._at(name):
                        added = (
                            "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
                            if news[name].has_default
                            else "REQUIRED_ATTRIBUTE_ADDED"
                        )
                        self.add("REQUIRED_ATTRIBUTE_REMOVED" if name in old.required else added)
        with self._at("properties"):
            for name in dict.fromkeys([*olds, *news]):
                with self._at(name):
                    if name not in news:
                        self._removed("PROPERTY", content_of_object(new), olds[name], name)
                    elif name not in olds:
                        self._property_added(content_of_object(old), new, name, news[name])
                    else:
                        self.pair(olds[name], news[name])
        self._dependencies(old, new)
        self._additional(old, new, "additionalProperties", "additionalProperties", "ADDITIONAL_PROPERTIES")
        self._unevaluated(old, new, "unevaluatedProperties")
        self._bounds(old, new, "maxProperties", "minProperties")

    def _property_added(self, content: Content, new: JsonNode, name: str, now: JsonNode) -> None:
        required = name in new.required
        if content.is_open:
            if now.kind == "any":
                self.add("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")
            else:
                self.add(added_property(required, now.has_default) + "_OPEN_CONTENT_MODEL")
            return
        if content.is_unknown(name):
            self.add(NOT_EVALUATED)
        cover = content.cover(name)
        if cover is not None:
            self._covered("PROPERTY_ADDED", cover, now)
        self.add(added_property(required, now.has_default) + "_UNOPEN_CONTENT_MODEL")

    def _removed(self, what: str, content: Content, was: JsonNode, name: str = "") -> None:
        """Compare a property or an item with the content of the new schema that takes its place."""
        if content.is_open:
            self.add(f"{what}_REMOVED_FROM_OPEN_CONTENT_MODEL")
            return
        if content.is_unknown(name):
            self.add(NOT_EVALUATED)
        cover = content.cover(name)
        if cover is None:
            closed = "WITH_FALSE_REMOVED" if was.kind == "nothing" else "REMOVED"
            self.add(f"{what}_{closed}_FROM_CLOSED_CONTENT_MODEL")
        else:
            self._covered(f"{what}_REMOVED", was, cover)

    def _covered(self, what: str, old: JsonNode, new: JsonNode) -> None:
        rows, readable = self._tried(old, new)
        self.found += rows
        self.add(f"{what}_{'IS' if readable else 'NOT'}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")

    def _dependencies(self, old: JsonNode, new: JsonNode) -> None:
        with self._at("dependencies"):
            olds, news = old.dependent_names(), new.dependent_names()
            for name in dict.fromkeys([*olds, *news]):
                with self._at(name):
                    if name not in news or name not in olds:
                        self.add("DEPENDENCY_ARRAY_REMOVED" if name not in news else "DEPENDENCY_ARRAY_ADDED")
                    elif olds[name] != news[name]:
                        more, fewer = news[name] >= olds[name], news[name] <= olds[name]
                        self.add(f"DEPENDENCY_ARRAY_{'EXTENDED' if more else 'NARROWED' if fewer else 'CHANGED'}")
            schemas, others = old.dependent_schemas(), new.dependent_schemas()
            for name in dict.fromkeys([*schemas, *others]):
                with self._at(name):
                    if name not in others or name not in schemas:
                        self.add("DEPENDENCY_SCHEMA_REMOVED" if name not in others else "DEPENDENCY_SCHEMA_ADDED")
                    else:
                        self.pair(schemas[name], others[name])

    def _additional(self, old: JsonNode, new: JsonNode, old_keyword: str, new_keyword: str, name: str) -> None:
        """Compare the additional content that objects and arrays may hold."""
        with self._at("additionalProperties" if name == "ADDITIONAL_PROPERTIES" else "additionalItems"):
            permitted_old, permitted_new = old.raw.get(old_keyword) is not False, new.raw.get(new_keyword) is not False
            was, now = old.child(old_keyword), new.child(new_keyword)
            if permitted_old != permitted_new:
                self.add(f"{name}_ADDED" if permitted_new else f"{name}_REMOVED")
            elif was is None and now is not None:
                self.add(f"{name}_NARROWED")
            elif now is None and was is not None:
                self.add(f"{name}_EXTENDED")
            else:
                self.pair(was, now)

    def _unevaluated(self, old: JsonNode, new: JsonNode, keyword: str) -> None:
        was, now = old.unevaluated(keyword), new.unevaluated(keyword)
        if was is None and now is None:
            return
        name = snake(keyword)
        closed_old, closed_new = was is not None and was.kind == "nothing", now is not None and now.kind == "nothing"
        with self._at(keyword):
            if closed_old != closed_new:
                self.add(f"{name}_ADDED" if closed_old else f"{name}_REMOVED")
            elif was is None or (was.kind == "any" and now is not None and now.kind != "any"):
                self.add(f"{name}_NARROWED")
            elif now is None or (now.kind == "any" and was.kind != "any"):
                self.add(f"{name}_EXTENDED")
            else:
                self.pair(was, now)

    # -- Arrays --------------------------------------------------------------------------------------------------------

    def _arrays(self, old: JsonNode, new: JsonNode) -> None:
        with self._at("items"):
            self.pair(old.all_items, new.all_items)
        olds, news = old.tuple_items, new.tuple_items
        for index in range(max(len(olds), len(news))):
            with self._at(f"items/{index}"):
                if index >= len(news):
                    self._removed("ITEM", content_of_array(new), olds[index])
                elif index >= len(olds):
                    self._item_added(content_of_array(old), news[index])
                else:
                    self.pair(olds[index], news[index])
        self._additional(old, new, old.additional_keyword, new.additional_keyword, "ADDITIONAL_ITEMS")
        self._unevaluated(old, new, "unevaluatedItems")
        self._bounds(old, new, "maxItems", "minItems")
        unique_old, unique_new = old.raw.get("uniqueItems") is True, new.raw.get("uniqueItems") is True
        if unique_old != unique_new:
            self.add("UNIQUE_ITEMS_REMOVED" if unique_old else "UNIQUE_ITEMS_ADDED", "uniqueItems")
        self._bounds(old, new, "maxContains", "minContains")

    def _item_added(self, content: Content, now: JsonNode) -> None:
        if content.is_open:
            empty = "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"
            self.add(empty if now.kind == "any" else "ITEM_ADDED_TO_OPEN_CONTENT_MODEL")
            return
        cover = content.cover()
        if cover is None:
            self.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")
        else:
            self._covered("ITEM_ADDED", cover, now)

    # -- Places --------------------------------------------------------------------------------------------------------

    def add(self, kind: str, *more: str) -> None:
        self.found.append(Difference(kind, "#/" + "/".join([*self._path, *more]), ""))

    def _prefix(self) -> str:
        return "#/" + "".join(part + "/" for part in self._path)

    @contextmanager
    def _at(self, part: str) -> Iterator[None]:
        self._path.append(part)
        yield
        self._path.pop()


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same in JSON, where true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _distinct(parts: Sequence[JsonNode]) -> list[JsonNode]:
    found: list[JsonNode] = []
    for part in parts:
        if not any(part.kind == other.kind and part.raw == other.raw for other in found):
            found.append(part)
    return found
