"""JSON schemas are checked against their draft by the library `jsonschema`, printed without spaces, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.registry.formats import json_compatibility, json_differences, json_rules
from ottla.registry.formats.java_json import dump, loads, sorted_keys
from ottla.registry.formats.json_model import Document
from ottla.registry.formats.parsed import InvalidSchema, ParsedSchema


class JsonSchema:
    """A schema, with the schemas that its $refs refer to."""

    kind = "JSON"

    def __init__(self, text: str, dependencies: Mapping[str, str]) -> None:
        self._root = _load(text)
        self._document = Document(self._root, {name: _load(row) for name, row in dependencies.items()})

    @property
    def canonical(self) -> str:
        return dump(self._root)

    def normalized(self) -> str:
        return dump(sorted_keys(self._root))

    def formatted(self, name: str) -> str:
        return self.canonical

    def incompatible(self, writer: ParsedSchema, *, lenient: bool = False) -> list[str]:
        assert isinstance(writer, JsonSchema)
        compatible = json_differences.LENIENT if lenient else json_differences.COMPATIBLE
        found = json_compatibility.compare(writer.root_node(), self.root_node(), compatible)
        return [json_differences.text_of(row.kind, row.path) for row in found if row.kind not in compatible]

    def root_node(self) -> Any:
        return self._document.node(self._root)

    def check(self) -> None:
        json_rules.check(self._root, self._document)


def _load(text: str) -> Any:
    try:
        root = loads(text, exact=True)
    except (ValueError, RecursionError) as fault:
        raise InvalidSchema(str(fault) or "the schema is nested too deeply") from None
    if not isinstance(root, dict | bool):
        raise InvalidSchema(f"Invalid schema of type {type(root).__name__}")
    return root
