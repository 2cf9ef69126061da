"""Messages from the JSON of Kafka's tools: what golden files hold is made into objects."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, TypeVar

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.json_form import json_name
from ottla.protocol.primitives import uuid_from_str
from ottla.protocol.schema import FIXED, Field, WireType, fields

T = TypeVar("T")

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def from_json(cls: type[T], data: dict[str, Any], version: int) -> T:
    """Return the message that `to_json` wrote. Raise MalformedMessage if the text is something else."""
    obj: T = _struct_from_json(cls, data, version)
    return obj


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
