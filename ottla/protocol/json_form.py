"""Messages as Kafka's tools write them in JSON: dump-log, request logs.

Names are Kafka's own in camelCase, UUIDs and bytes are base64, tagged fields at their default are left out. Record
batches become their size, `recordsSizeInBytes`, as in Kafka.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.schema import WireType, check_version, fields
from ottla.protocol.source import default_value

# Names from whose snake_case form Kafka's spelling cannot be derived.
_SPELLING = {
    "enable_2pc": "enable2Pc",
    "kraft_version": "kRaftVersion",
    "kraft_version_feature": "kRaftVersionFeature",
}


def json_name(name: str) -> str:
    """Return Kafka's name of a field."""
    first, *rest = name.split("_")
    return _SPELLING.get(name) or first + "".join(word.capitalize() for word in rest)


def to_json(obj: Any, version: int) -> dict[str, object]:
    """Return the message as an object of the json module."""
    check_version(obj.__plain__, version)
    return _struct_to_json(obj, version)


def _struct_to_json(obj: Any, version: int) -> dict[str, object]:
    out: dict[str, object] = {}
    for field in fields(obj.__plain__):
        value = getattr(obj, field.name)
        at_default = value == default_value(field)
        if version not in field.versions:
            if not at_default and not field.ignorable:
                raise UnsupportedVersion(f"{field.name} is set, but version {version} has no such field")
        elif field.type.name == "Records" and value is not None:
            size = sum(map(len, value)) if isinstance(value, list) else len(value)
            out[json_name(field.name) + "SizeInBytes"] = size
        elif field.tag is None or not at_default:
            out[json_name(field.name)] = _to_json(field.type, value, version)
    return out


def _to_json(wire_type: WireType, value: Any, version: int) -> object:
    if value is None:
        return None
    if wire_type.item is not None:
        return [_to_json(wire_type.item, item, version) for item in value]
    if wire_type.struct is not None:
        return _struct_to_json(value, version)
    if wire_type.name == "uuid":
        return uuid_to_str(value)
    if wire_type.name == "bytes":
        return b64encode(value).decode("ascii")
    return value
