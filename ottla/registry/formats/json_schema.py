"""JSON schemas: checked by the library `jsonschema` against their draft, printed without spaces, and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.registry.formats import json_compatibility, json_differences
from ottla.registry.formats.java_json import dump, sorted_keys
from ottla.registry.formats.json_model import Document
from ottla.registry.formats.parsed import InvalidSchema, ParsedSchema

#: The draft of a schema that names none, as in Confluent's registry.
DEFAULT_DRAFT = "http://json-schema.org/draft-07/schema#"


class JsonSchema:
    """A schema, with those that its $refs name."""

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
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError

        draft = self._root.get("$schema", DEFAULT_DRAFT) if isinstance(self._root, dict) else DEFAULT_DRAFT
        checker = validators.validator_for({"$schema": draft}, validators.Draft7Validator)
        try:
            checker.check_schema(self._root)
        except SchemaError as fault:
            raise InvalidSchema(f"{fault.json_path}: {fault.message}"[:1000]) from None
        except (RecursionError, TypeError, ValueError) as fault:
            raise InvalidSchema(str(fault) or "the schema is nested too deeply") from None
        self._check_references()

    def _check_references(self) -> None:
        waiting = [self._root]
        while waiting:
            row = waiting.pop()
            if isinstance(row, dict):
                reference = row.get("$ref")
                if isinstance(reference, str) and not _is_meta(reference):
                    _ = self._document.resolve(reference).target
                waiting += row.values()
            elif isinstance(row, list):
                waiting += row


def _is_meta(reference: str) -> bool:
    return reference.startswith(("http://json-schema.org/", "https://json-schema.org/"))


def _load(text: str) -> Any:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise InvalidSchema(str(fault) or "the schema is nested too deeply") from None
    if not isinstance(root, dict | bool):
        raise InvalidSchema(f"Invalid schema of type {type(root).__name__}")
    return root
