"""Content models, which Confluent's rules compare: what an object or array may contain besides its named properties or items.

An open model allows anything, a closed one nothing. The others are partially open, and allow what a schema covers.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.registry.formats.json_model import JsonNode
from ottla.registry.formats.json_pattern import matches


class Content:
    def __init__(self, node: JsonNode, additional: str, unevaluated: str, patterns: Mapping[str, JsonNode]) -> None:
        """Take the keywords of additional and of unevaluated content, and the schemas by a pattern of names."""
        self._is_closed = node.raw.get(additional) is False
        self._additional = node.child(additional)
        self._rest = node.unevaluated(unevaluated)
        self._patterns = patterns

    @property
    def is_open(self) -> bool:
        if self._is_closed or self._additional is not None or self._patterns:
            return False
        return self._rest is None or self._rest.kind == "any"

    def is_unknown(self, name: str) -> bool:
        """Return whether it depends on a pattern that cannot be evaluated whether a schema covers a name."""
        for pattern in self._patterns:
            found = matches(pattern, name)
            if found is not False:
                return found is None
        return False

    def cover(self, name: str = "") -> JsonNode | None:
        """Return the schema of content with this name that is not declared; None if anything is allowed, or nothing."""
        for pattern, schema in self._patterns.items():
            if matches(pattern, name):
                return schema
        if self._additional is not None or self._is_closed:
            return self._additional
        return self._rest if self._rest is not None and self._rest.kind not in ("any", "nothing") else None


def content_of_object(node: JsonNode) -> Content:
    return Content(node, "additionalProperties", "unevaluatedProperties", node.children("patternProperties"))


def content_of_array(node: JsonNode) -> Content:
    return Content(node, node.additional_keyword, "unevaluatedItems", {})
