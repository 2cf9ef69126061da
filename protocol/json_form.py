"""Messages as Kafka's tools write them in JSON: dump-log, the quorum-state file, request logs.

Names are Kafka's own in camelCase, UUIDs and bytes are base64, tagged fields at their default are left out. Record
batches become their size, `recordsSizeInBytes`, as in Kafka, so that a message with batches cannot be read back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, TypeVar

from protocol.errors import MalformedMessage, UnsupportedVersion
from protocol.primitives import uuid_from_str, uuid_to_str
from protocol.ranges import Versions
from protocol.schema import FIXED, Field, WireType, fields, info_of
from protocol.source import default_value

T = TypeVar("T")

# Names whose snake_case form does not tell Kafka's spelling.
_SPELLING = {
    "enable_2pc": "enable2Pc",
    "kraft_version": "kRaftVersion",
    "kraft_version_feature": "kRaftVersionFeature",
}

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def json_name(name: str) -> str:
    """Kafka's name of a field."""
    first, *rest = name.split("_")
    return _SPELLING.get(name) or first + "".join(word.capitalize() for word in rest)


def to_json(obj: Any, version: int) -> dict[str, Any]:
    """The message as an object of the json module."""
    _check_version(obj.__plain__, version)
    return _struct_to_json(obj, version)


def from_json(cls: type[T], data: dict[str, Any], version: int) -> T:
    """The message that to_json() wrote; MalformedMessage when it is something else."""
    _check_version(cls, version)
    obj: T = _struct_from_json(cls, data, version)
    return obj


def _check_version(cls: type[Any], version: int) -> None:
    versions: Versions = info_of(cls).versions
    if version not in versions:
        raise UnsupportedVersion(f"{cls.__name__} has versions {versions}, not {version}")


def _struct_to_json(obj: Any, version: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
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


def _to_json(wire_type: WireType, value: Any, version: int) -> Any:
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


def _struct_from_json(cls: type[Any], data: Any, version: int) -> Any:
    if not isinstance(data, dict):
        raise MalformedMessage(f"{cls.__name__}: not an object but {data!r}")
    values = {}
    for field in fields(cls):
        name = json_name(field.name)
        if version not in field.versions:
            continue
        if name in data:
            values[field.name] = _field_from_json(cls, field, data[name], version)
        elif field.tag is None and field.type.name != "Records":
            raise MalformedMessage(f"{cls.__name__}: {name} is missing")
    return cls(**values)


def _field_from_json(cls: type[Any], field: Field, data: Any, version: int) -> Any:
    try:
        if data is None and version in field.nullable:
            return None
        return _from_json(field.type, data, version)
    except (TypeError, ValueError, AttributeError) as error:
        raise MalformedMessage(f"{cls.__name__}.{field.name}: {data!r}: {error}") from error


def _from_json(wire_type: WireType, data: Any, version: int) -> Any:
    kind = wire_type.name
    if wire_type.item is not None:
        if not isinstance(data, list):
            raise TypeError("not an array")
        return [_from_json(wire_type.item, item, version) for item in data]
    if wire_type.struct is not None:
        return _struct_from_json(wire_type.struct, data, version)
    if kind == "uuid":
        return uuid_from_str(data)
    if kind in ("bytes", "Records"):
        return b64decode(data, validate=True)
    if not isinstance(data, _PYTHON_TYPE[kind]) or (isinstance(data, bool) and kind != "bool"):
        raise TypeError(f"not a {kind}")
    bits = _BITS.get(kind)
    if bits and not -(1 << bits - 1) <= data < 1 << bits - 1:
        raise ValueError(f"too large for {kind}")
    return data


_PYTHON_TYPE: dict[str, tuple[type[Any], ...]] = dict.fromkeys(FIXED, (int,)) | {
    "bool": (bool,),
    "float64": (float, int),
    "str": (str,),
}
