"""JSON Schema as a tree of nodes of one kind each, which the check of compatibility compares.

A schema with keywords of several kinds becomes an `allOf` with one node for each kind, and several types become an `anyOf`, as
in the Java library of Confluent's registry: {"type": ["string", "null"]} is anyOf two nodes, {"type": "string", "enum": [...]}
is allOf two. Before draft 2019-09 keywords beside a $ref have no meaning. Nodes are made when they are first used, so a schema
may refer to itself.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from ottla.registry.formats.parsed import InvalidSchema

#: Keywords that belong to a type. Without `type`, they make a node of that type.
KEYWORDS = {
    "string": frozenset(("minLength", "maxLength", "pattern", "format")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    "array": frozenset(
        (
            "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
            "maxContains", "unevaluatedItems",
        )
    ),
    "object": frozenset(
        (
            "properties", "required", "minProperties", "maxProperties", "dependencies", "dependentRequired",
            "dependentSchemas", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties",
        )
    ),
}  # fmt: skip
CRITERIA = ("allOf", "anyOf", "oneOf")
#: Keywords that contain schemas by names; and all keywords that contain schemas: one, an array, or by names.
MAPS = frozenset(("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"))
HOLDERS = MAPS | frozenset(
    (
        "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "prefixItems",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", *CRITERIA,
    )
)  # fmt: skip
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
#: Drafts in which `prefixItems` has the items of a tuple, and in which a $ref may have keywords beside it.
WITH_PREFIX_ITEMS = ("2020-12",)
WITH_SIBLINGS = ("2019-09", "2020-12")
REFERENCES_MAX = 1_000

Json = Any


class Document:
    """The text that nodes are made from: its root, and the documents that it refers to."""

    def __init__(self, root: Json, others: Mapping[str, Json], name: str = "") -> None:
        self.root = root
        self.name = name
        self._others = others
        self._documents: dict[str, Document] = {}
        self._nodes: dict[int, JsonNode] = {}
        draft = str(root.get("$schema", "")) if isinstance(root, dict) else ""
        self.has_prefix_items = any(part in draft for part in WITH_PREFIX_ITEMS)
        self.has_siblings = any(part in draft for part in WITH_SIBLINGS)

    def node(self, raw: Json) -> JsonNode:
        """Return the node of a schema in this document. For the same schema it is always the same node."""
        found = self._nodes.get(id(raw))
        # Equal values such as true and false may be the same Python object, so only those of objects are kept.
        if found is None:
            found = _node(self, raw)
            if isinstance(raw, dict):
                self._nodes[id(raw)] = found
        return found

    def resolve(self, reference: str) -> JsonNode:
        """Return the node that a $ref refers to.

        Raises:
            InvalidSchema: there is none.
        """
        place, _, fragment = reference.partition("#")
        document = self._document(place)
        if document is None:
            raise InvalidSchema(f"Could not resolve the reference '{reference}'")
        return document.node(document.at(urllib.parse.unquote(fragment), reference))

    def at(self, pointer: str, reference: str) -> Json:
        if pointer and not pointer.startswith("/"):
            found = _anchored(self.root, pointer)
            if found is not None:
                return found
            raise InvalidSchema(f"Could not resolve the reference '{reference}'")
        value = self.root
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                raise InvalidSchema(f"Could not resolve the reference '{reference}'")
        if not isinstance(value, dict | bool):
            raise InvalidSchema(f"'{reference}' is no schema")
        return value

    def _document(self, place: str) -> Document | None:
        own = _id_of(self.root)
        full = urllib.parse.urljoin(own, place)
        if place in ("", self.name) or full == own:
            return self
        for name in (place, full, self.name and urllib.parse.urljoin(self.name, place)):
            if name in self._others:
                if name not in self._documents:
                    self._documents[name] = Document(self._others[name], self._others, name)
                    self._documents[name]._documents = self._documents
                return self._documents[name]
        inner = _with_id(self.root, {place, full})
        return None if inner is None else Document(inner, self._others, place)


class JsonNode:
    """A schema of one kind: a type, or any, nothing, const, enum, not, conditional, combined, reference."""

    def __init__(
        self, document: Document, raw: Json, kind: str, parts: Sequence[JsonNode] = (), criterion: str = ""
    ) -> None:
        self.document = document
        self.raw: Mapping[str, Json] = raw if isinstance(raw, dict) else {}
        self.kind = kind
        self.parts = parts
        self.criterion = criterion
        #: Only the outermost node of a schema has its common keywords.
        self.is_outer = False

    def common(self, keyword: str) -> Json:
        """Return a title, description, default or $id."""
        return self.raw.get(keyword) if self.is_outer else None

    @property
    def has_default(self) -> bool:
        return self.is_outer and "default" in self.raw

    @cached_property
    def target(self) -> JsonNode:
        """The schema that a reference refers to.

        If that is a meta-schema, or the references form a circle, the reference itself.
        """
        found = self
        for _ in range(REFERENCES_MAX):
            if found.kind != "reference" or is_meta(found.raw["$ref"]):
                return found
            found = found.document.resolve(str(found.raw["$ref"]))
        return self

    def child(self, keyword: str) -> JsonNode | None:
        """Return the schema in a keyword, if there is one and it is no boolean."""
        raw = self.raw.get(keyword)
        return self.document.node(raw) if isinstance(raw, dict) else None

    def child_or_boolean(self, keyword: str) -> JsonNode | None:
        raw = self.raw.get(keyword)
        return self.document.node(raw) if isinstance(raw, dict | bool) else None

    def children(self, keyword: str) -> dict[str, JsonNode]:
        rows = self.raw.get(keyword)
        return {name: self.document.node(raw) for name, raw in rows.items()} if isinstance(rows, dict) else {}

    def unevaluated(self, keyword: str) -> JsonNode | None:
        """Return the schema in a keyword that was introduced with draft 2019-09."""
        return self.child_or_boolean(keyword) if self.document.has_siblings else None

    # -- Numbers -------------------------------------------------------------------------------------------------------

    def number(self, keyword: str) -> Decimal | None:
        value = self.raw.get(keyword)
        return None if isinstance(value, bool) or not isinstance(value, int | Decimal) else Decimal(value)

    @property
    def is_integer(self) -> bool:
        types = self.raw.get("type")
        return types == "integer" or (isinstance(types, list) and "integer" in types and "number" not in types)

    # -- Arrays --------------------------------------------------------------------------------------------------------

    @property
    def tuple_items(self) -> list[JsonNode]:
        rows = self.raw.get("prefixItems" if self.document.has_prefix_items else "items")
        return [self.document.node(raw) for raw in rows] if isinstance(rows, list) else []

    @property
    def all_items(self) -> JsonNode | None:
        if self.document.has_prefix_items and "prefixItems" in self.raw:
            return None
        return self.child_or_boolean("items")

    @property
    def additional_keyword(self) -> str:
        """The keyword for the items after those of a tuple."""
        return "items" if self.document.has_prefix_items and "prefixItems" in self.raw else "additionalItems"

    # -- Objects -------------------------------------------------------------------------------------------------------

    @property
    def required(self) -> frozenset[str]:
        rows = self.raw.get("required")
        return frozenset(row for row in rows if isinstance(row, str)) if isinstance(rows, list) else frozenset()

    def dependent_names(self) -> dict[str, frozenset[str]]:
        """Return for each property the names that must exist together with it."""
        rows = {**(self.raw.get("dependencies") or {}), **(self.raw.get("dependentRequired") or {})}
        return {name: frozenset(names) for name, names in rows.items() if isinstance(names, list)}

    def dependent_schemas(self) -> dict[str, JsonNode]:
        rows = {**(self.raw.get("dependencies") or {}), **(self.raw.get("dependentSchemas") or {})}
        return {name: self.document.node(raw) for name, raw in rows.items() if isinstance(raw, dict | bool)}


def _node(document: Document, raw: Json) -> JsonNode:
    if isinstance(raw, bool):
        return JsonNode(document, raw, "any" if raw else "nothing")
    if not isinstance(raw, dict):
        raise InvalidSchema(f"Expected a schema, found {type(raw).__name__}")
    rows = _kinds(document, raw)
    made = rows[0] if len(rows) == 1 else JsonNode(document, raw, "combined", rows, "allOf")
    if not rows:
        made = JsonNode(document, raw, "any")
    made.is_outer = True
    return made


def _kinds(document: Document, raw: Mapping[str, Json]) -> list[JsonNode]:
    """Return one node for each kind of keyword of a schema."""
    rows: list[JsonNode] = []
    if isinstance(raw.get("$ref"), str):
        rows.append(JsonNode(document, raw, "reference"))
        if not document.has_siblings:
            return rows
    if "enum" in raw:
        rows.append(JsonNode(document, raw, "enum"))
    rows += [
        JsonNode(document, raw, "combined", [document.node(part) for part in raw[criterion]], criterion)
        for criterion in CRITERIA
        if isinstance(raw.get(criterion), list)
    ]
    if "not" in raw:
        rows.append(JsonNode(document, raw, "not"))
    if "const" in raw:
        rows.append(JsonNode(document, raw, "const"))
    if "if" in raw and ("then" in raw or "else" in raw):
        rows.append(JsonNode(document, raw, "conditional"))
    types = raw.get("type")
    if isinstance(types, list):
        rows.append(JsonNode(document, raw, "combined", [_typed(document, raw, name) for name in types], "anyOf"))
    elif types is not None:
        rows.append(_typed(document, raw, types))
    else:
        rows += [_typed(document, raw, name) for name, keywords in KEYWORDS.items() if not keywords.isdisjoint(raw)]
    return rows


def _typed(document: Document, raw: Mapping[str, Json], name: Json) -> JsonNode:
    if name not in TYPES:
        raise InvalidSchema(f"unknown type: [{name}]")
    return JsonNode(document, raw, "number" if name == "integer" else str(name))


def is_meta(reference: str) -> bool:
    """Return whether a reference refers to the schema of a draft, which is known without a registry."""
    return reference.startswith(("http://json-schema.org/", "https://json-schema.org/"))


def _id_of(raw: Json) -> str:
    """Return the id of a schema without an empty fragment, or nothing if it has none."""
    found = raw.get("$id", raw.get("id")) if isinstance(raw, dict) else None
    return found.removesuffix("#") if isinstance(found, str) else ""


def _anchored(value: Json, anchor: str) -> Json:
    """Return the schema with an $anchor, or with an $id that is only a fragment."""
    for row in _schemas(value):
        if row.get("$anchor") == anchor or row.get("$dynamicAnchor") == anchor or f"#{anchor}" == _id_of(row):
            return row
    return None


def _with_id(value: Json, places: set[str]) -> Json:
    return next((row for row in _schemas(value) if _id_of(row) in places), None)


def _schemas(value: Json) -> Iterator[Mapping[str, Json]]:
    """Yield all schemas of a document that are objects."""
    waiting = [value]
    while waiting:
        row = waiting.pop()
        if isinstance(row, dict):
            yield row
            waiting += [part for keyword in HOLDERS for part in held(row, keyword)]


def held(raw: Mapping[str, Json], keyword: str) -> list[Json]:
    """Return the schemas that a keyword contains. Other keywords contain values, and no schemas."""
    value = raw.get(keyword)
    if keyword in MAPS:
        return list(value.values()) if isinstance(value, dict) else []
    if keyword not in HOLDERS:
        return []
    return list(value) if isinstance(value, list) else [value]
