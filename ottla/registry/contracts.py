"""Metadata and rule sets of schemas (data contracts): their JSON, and how several are merged.

Reference: Metadata and RuleSet of Confluent's client. Confluent's registry merges those of a schema with those in its subject's
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.registry.errors import RegistryError

#: This property of metadata is the number of the version.
VERSION = "confluent:version"
RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")
Json = Mapping[str, Any]


def metadata_of(value: object) -> dict[str, Any] | None:
    """Return metadata from a request.

    Raises:
        RegistryError: its form differs from that of Confluent's clients.
    """
    if value is None:
        return None
    made = _object(value)
    properties, tags = _object(made.get("properties") or {}), _object(made.get("tags") or {})
    texts = [
        *properties.values(),
        *(text for row in tags.values() for text in _list(row)),
        *_list(made.get("sensitive")),
    ]
    if not all(isinstance(text, str) for text in texts):
        raise _WRONG
    return made


def rules_of(value: object) -> dict[str, Any] | None:
    """Return a rule set from a request.

    Raises:
        RegistryError: its form differs from that of Confluent's clients.
    """
    if value is None:
        return None
    made = _object(value)
    for name in RULE_LISTS:
        for row in _list(made.get(name)):
            _object(row)
    return made


def merged_metadata(*layers: Json | None) -> Json | None:
    """Return the metadata of all layers, of which a later one wins; None if no layer has any."""
    return _merged(layers, _both_metadata)


def merged_rules(*layers: Json | None) -> Json | None:
    """Return the rules of all layers. Of two rules with the same name the later one wins."""
    return _merged(layers, _both_rules)


def version_in(metadata: Json | None) -> str | None:
    """Return the version number in metadata."""
    found = ((metadata or {}).get("properties") or {}).get(VERSION)
    return found if isinstance(found, str) else None


def with_version(metadata: Json | None, number: int | str) -> Json:
    made = metadata or {}
    return {**made, "properties": {**(made.get("properties") or {}), VERSION: str(number)}}


_WRONG = RegistryError("invalid_schema", "metadata and ruleSet are objects, of texts and of rules")


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WRONG
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list | None):
        raise _WRONG
    return value or []


def _merged(layers: tuple[Json | None, ...], both: Callable[[Json, Json], Json]) -> Json | None:
    made: Json | None = None
    for layer in layers:
        made = layer if made is None else made if layer is None else both(made, layer)
    return made


def _both_metadata(old: Json, new: Json) -> Json:
    made: dict[str, Any] = {**old, **new}
    for name in ("tags", "properties"):
        if old.get(name) and name in made:
            made[name] = {**old[name], **(new.get(name) or {})}
    if old.get("sensitive"):
        made["sensitive"] = sorted({*old["sensitive"], *(new.get("sensitive") or ())})
    return made


def _both_rules(old: Json, new: Json) -> Json:
    made: dict[str, Any] = {**old, **new}
    for name in RULE_LISTS:
        added = new.get(name) or []
        names = [row.get("name") for row in added]
        if rows := [*(row for row in old.get(name) or [] if row.get("name") not in names), *added]:
            made[name] = rows
    return made
