"""The validity of JSON schemas, by the meta-schema of their draft without its minimums, by their regular expressions, and by
their references.

The libraries of Confluent's registry check the types of keywords' values, and nothing else of the meta-schemas: an array of
`required` may be empty or have a name twice, as generators write it. References are followed from the root on: in drafts before
2019-09 an unused definition may refer to anything.

Reference: everit-json-schema 1.14.6 and json-sKema 0.23.0, by what they reject.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

from ottla.registry.formats.json_model import HOLDERS, Document, Json, held, is_meta
from ottla.registry.formats.json_pattern import check_pattern
from ottla.registry.formats.parsed import InvalidSchema

#: The draft of a schema that names none. It is that of Confluent's registry.
DEFAULT_DRAFT = "http://json-schema.org/draft-07/schema#"
#: These keywords are removed from the meta-schemas.
LEFT_OUT = frozenset(
    (
        "minItems",
        "uniqueItems",
        "minLength",
        "minimum",
        "exclusiveMinimum",
        "minProperties",
        "format",
        "pattern",
        "$schema",
    )
)


def check(root: Json, document: Document) -> None:
    """Check a schema and everything that it refers to within its document.

    Raises:
        InvalidSchema: something in it is not valid.
    """
    from jsonschema.exceptions import best_match

    draft = root.get("$schema") if isinstance(root, dict) else None
    try:
        fault = best_match(
            _meta_validator(draft if isinstance(draft, str) else DEFAULT_DRAFT).iter_errors(_rough(root))
        )
        if fault is not None:
            raise InvalidSchema(f"{fault.json_path}: {fault.message}"[:1000])
    except (RecursionError, TypeError, ValueError) as fault:
        raise InvalidSchema(str(fault) or "the schema is nested too deeply") from None
    _check_parts(root, document)


def _check_parts(root: Json, document: Document) -> None:
    """Check references and regular expressions, in the order in which schemas are found."""
    waiting = [(root, document)]
    seen: set[int] = set()
    while waiting:
        row, within = waiting.pop()
        if not isinstance(row, dict) or id(row) in seen:
            continue
        seen.add(id(row))
        within.node(row)  # this raises an error for an unknown type
        reference = row.get("$ref", "")
        if not isinstance(reference, str):
            raise InvalidSchema(f"a $ref is a text, and no {type(reference).__name__}")
        if "$ref" in row:
            if not is_meta(reference):
                target = within.resolve(reference)
                # Another document was checked when it was registered.
                waiting += [(target.raw, within)] if target.document is within else []
            if not within.has_siblings:
                continue
        if row.get("multipleOf") == 0 and not within.has_siblings:
            raise InvalidSchema("multipleOf should not be 0")
        for text in (row.get("pattern"), *(row.get("patternProperties") or ())):
            if isinstance(text, str):
                check_pattern(text)
        unreached = ("definitions",) if within.has_siblings else ("definitions", "$defs")
        waiting += [(part, within) for keyword in HOLDERS.difference(unreached) for part in held(row, keyword)]


@lru_cache(maxsize=16)
def _meta_validator(draft: str) -> Any:
    """Return the validator for schemas of a draft. For an unknown draft it is that of draft 7."""
    from jsonschema import validators
    from jsonschema_specifications import REGISTRY
    from referencing import Registry
    from referencing.jsonschema import specification_with

    kind: Any = validators.validator_for({"$schema": draft}, validators.Draft7Validator)
    rows = [(uri, REGISTRY[uri].contents) for uri in REGISTRY]
    specifications: Any = Registry().with_resources(
        (uri, specification_with(row["$schema"]).create_resource(_without_minimums(row))) for uri, row in rows
    )
    return kind(_without_minimums(kind.META_SCHEMA), registry=specifications)


def _without_minimums(value: Json) -> Json:
    if isinstance(value, list):
        return [_without_minimums(row) for row in value]
    if not isinstance(value, dict):
        return value
    # If the value is an object, the key is not this keyword but the name of a property.
    return {key: _without_minimums(row) for key, row in value.items() if key not in LEFT_OUT or isinstance(row, dict)}


def _rough(value: Json) -> Json:
    """Return a schema with doubles in place of exact numbers, which the library does not know."""
    if isinstance(value, dict):
        return {key: _rough(row) for key, row in value.items()}
    if isinstance(value, list):
        return [_rough(row) for row in value]
    return float(value) if isinstance(value, Decimal) else value
