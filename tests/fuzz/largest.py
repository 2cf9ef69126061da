"""The largest request of each API for each of its lists, as large as the limits of a request allow. It is made from the schemas
of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ottla.controller.decisions.configs import ConfigOp
from ottla.protocol.api import APIS, Api, ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.decoding import NUMBERS, elements_max, is_cheap
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.schema import Field, Struct, WireType, fields

TOPIC, GROUP = "t", "g"
#: The nullable texts that are not null here.
NAMES = ("name", "topic", "topic_name", "resource_name", "entity_name")
#: Values for fields whose default would be rejected at once, or would make the request wait long.
CHOSEN = {"resource_type": 2, "resource_type_filter": 2, "acks": 1, "timeout_ms": 10, "max_wait_ms": 10, "min_bytes": 0}
CLIENT_ID = "largest"
HEADER_BYTES_MAX = 64


class Shape(NamedTuple):
    """The shape of a large request. `path` names the list that has many elements; each list on the way to it, and each list in
    its elements, has one.
    """

    key: ApiKey
    path: tuple[str, ...]
    #: True if the elements are all the same: a topic or group that exists.
    is_repeated: bool = False
    #: True if names are so long that the request has as many bytes as it may have.
    is_long: bool = False
    #: The name of a request in BY_HAND: its cost comes from the content of a text, which no schema shows.
    by_hand: str = ""

    @property
    def text(self) -> str:
        return self.by_hand or ".".join(self.path) + (
            ", one repeated" if self.is_repeated else ", long names" if self.is_long else ""
        )

    def __str__(self) -> str:
        return f"{self.key.name} {self.text}"


def version_of(api: Api) -> int:
    return api.max_version - 1 if api.latest_unstable else api.max_version


def shapes() -> Iterator[Shape]:
    for key, api in APIS.items():
        found = list(_lists(api.request, version_of(api)))
        for path in found:
            yield Shape(key, path)
            yield Shape(key, path, is_repeated=True)
            yield Shape(key, path, is_long=True)
        if not found:
            yield Shape(key, ())
    for by_hand in BY_HAND:
        yield Shape(ApiKey.INCREMENTAL_ALTER_CONFIGS, (), by_hand=by_hand)


def _lists(cls: type[Any], version: int) -> Iterator[tuple[str, ...]]:
    for field in fields(cls):
        item = field.type.item
        if item is not None and version in field.versions and field.tag is None:
            yield (field.name,)
            if item.struct is not None:
                yield from ((field.name, *path) for path in _lists(item.struct, version))


def largest(shape: Shape, topic_id: bytes, bytes_max: int) -> bytes:
    """Return the body of a frame: header and request."""
    api = APIS[shape.key]
    version = version_of(api)
    cls = api.request
    made = _Maker(version, shape, topic_id)
    bytes_max -= HEADER_BYTES_MAX
    request = made(cls, 1)
    if shape.by_hand:
        request = BY_HAND[shape.by_hand](bytes_max)
    elif shape.path:
        one, many = elements(request), elements(made(cls, 1_001))
        count = 1 + int((elements_max(cls) - one) * 1_000 / (many - one))
        request = made(cls, count)
        size = len(encode(request, version))
        if size > bytes_max:
            request = made(cls, int(count * bytes_max / size))
        elif shape.is_long and made.names:
            made.more = min(240, (bytes_max - size) // made.names - 2)
            request = made(cls, count)
    return encode_request_header(shape.key, version, 1, CLIENT_ID) + encode(request, version)


def _altered_lists(operation: int, bytes_max: int) -> IncrementalAlterConfigsRequest:
    """Return a request with as many lists as fit into it. Each is as long as a text may be, and its parts are all different."""
    value = ",".join(f"{number}:1" for number in range(4_400))
    config = AlterableConfig(name="leader.replication.throttled.replicas", config_operation=operation, value=value)
    resources = [
        AlterConfigsResource(resource_type=2, resource_name=f"t{number}", configs=[config])
        for number in range(bytes_max // (len(value) + 100))
    ]
    return IncrementalAlterConfigsRequest(resources=resources)


BY_HAND: dict[str, Callable[[int], IncrementalAlterConfigsRequest]] = {
    "long lists that are set": partial(_altered_lists, ConfigOp.SET),
    "long lists that are appended": partial(_altered_lists, ConfigOp.APPEND),
}


def elements(value: Any, field: str = "") -> float:
    """Return the number of elements, counted as the decoders do."""
    if isinstance(value, list):
        share = 8 if value and not isinstance(value[0], str | Struct) and is_cheap(field) else 1
        return len(value) / share + sum(elements(each) for each in value)
    if isinstance(value, Struct):
        return sum(elements(getattr(value, name), name) for name in value.__field_names__)
    return 0


class _Maker:
    def __init__(self, version: int, shape: Shape, topic_id: bytes) -> None:
        self.version, self.shape, self.topic_id = version, shape, topic_id
        self.count = self.names = self.more = 0

    def __call__(self, cls: type[Any], count: int) -> Any:
        self.count, self.names = count, 0
        return self._struct(cls, self.shape.path, 0)

    def _struct(self, cls: type[Any], path: tuple[str, ...], number: int) -> Any:
        chosen = {}
        for field in fields(cls):
            if self.version in field.versions and field.tag is None:
                value = self._field(field, path[1:] if path[:1] == (field.name,) else None, number)
                if value is not None or self.version in field.nullable:
                    chosen[field.name] = value
        return cls(**chosen)

    def _field(self, field: Field, rest: tuple[str, ...] | None, number: int) -> Any:
        """Return the value of a field; `rest` is the path below it, or None if the field is not on the path."""
        wire_type = field.type
        if wire_type.item is not None:
            count = self.count if rest == () else 1
            if self.shape.is_repeated or count == 1:
                return [self._item(wire_type.item, field.name, rest or (), 0 if rest == () else number)] * count
            return [self._item(wire_type.item, field.name, rest or (), each) for each in range(count)]
        if wire_type.struct is not None:
            return self._struct(wire_type.struct, rest or (), number)
        return self._scalar(field.name, wire_type, number, self.version in field.nullable)

    def _item(self, wire_type: WireType, name: str, rest: tuple[str, ...], number: int) -> Any:
        if wire_type.struct is not None:
            return self._struct(wire_type.struct, rest, number)
        return self._scalar(name, wire_type, number, False)

    def _scalar(self, name: str, wire_type: WireType, number: int, nullable: bool) -> Any:
        kind = wire_type.name
        if kind == "str":
            return self._text(name, number, nullable)
        if kind == "uuid":
            return self.topic_id if self.shape.is_repeated or not number else number.to_bytes(16, "big")
        if kind in ("bytes", "Records"):
            return None if nullable else b""
        if kind == "bool":
            return False
        if kind == "float64":
            return 1.0
        if name in CHOSEN:
            return CHOSEN[name]
        is_named = "partition" in name or name == "index"
        return number % (1 << 15) if is_named and not self.shape.is_repeated and kind in NUMBERS else 0

    def _text(self, name: str, number: int, nullable: bool) -> str | None:
        known = GROUP if "group" in name else TOPIC if name in NAMES or not nullable else None
        if known is None or self.shape.is_repeated or not number:
            return known
        self.names += 1
        return f"{known}{number}{'x' * self.more}"
