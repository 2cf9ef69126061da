"""The declaration language of messages: @api_message, @message, @struct, v(...) and the names of the wire types.

One class describes all versions of a struct; a field names its versions (by default all of its message's):

    @api_message(12)
    class HeartbeatRequest:
        group_id: str = ""
        generation_id: int32 = 0
        group_instance_id: str | None = v("3+", default=None)

Annotations are the wire types: bool, int8 to int64, uint16, uint32, float64, str, bytes, uuid (16 bytes), Records
and RequestRecords (record batches, passed through without a copy), list[...] and structs; `| None` makes them nullable.

Each declared class costs time at start-up, so the decorators only give the class its slots. Annotations are read by
`fields()` when a codec is first compiled, and the constructor is compiled when it is first called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar, dataclass_transform

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import UnsupportedVersion

#: The default of a field of type uuid: no topic, no directory.
ZERO_UUID = bytes(16)
OPEN_END = 32767  # versions are int16 on the wire, so this is the largest there can be


class Versions(NamedTuple):
    """An inclusive range of versions; it is empty when `low` is above `high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == OPEN_END:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def all(self) -> range:
        """Return every version of the range, lowest first."""
        return range(self.low, self.high + 1)


NONE = Versions(0, -1)
ALL = Versions(0, OPEN_END)


@cache
def parse_versions(text: str) -> Versions:
    """Read a range as Kafka writes it: "3+", "0-4", "2" or "none"."""
    if text == "none":
        return NONE
    low, separator, high = text.partition("-")
    if separator:
        return Versions(int(low), int(high))
    if text.endswith("+"):
        return Versions(int(text[:-1]), OPEN_END)
    return Versions(int(text), int(text))


int8: TypeAlias = int
int16: TypeAlias = int
int32: TypeAlias = int
int64: TypeAlias = int
uint16: TypeAlias = int
uint32: TypeAlias = int
float64: TypeAlias = float
uuid: TypeAlias = bytes
Records: TypeAlias = bytes | memoryview | list[memoryview]
#: The records in a request are in one buffer; those in a response may be in several.
RequestRecords: TypeAlias = bytes | memoryview

T = TypeVar("T")
Parameters = ParamSpec("Parameters")

# Wire type -> struct code, and the default value of a field without an explicit one.
FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint16": "H", "uint32": "I", "float64": "d", "uuid": "16s",
}  # fmt: skip
_ZERO: dict[str, object] = dict.fromkeys(FIXED, 0) | {
    "bool": False, "float64": 0.0, "uuid": ZERO_UUID, "str": "", "bytes": b"", "Records": None,
}  # fmt: skip


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()


class Declared(NamedTuple):
    """The arguments of v(...) for a field."""

    versions: str | None
    default: object
    tag: int | None
    nullable: str | None
    ignorable: bool


def v(
    versions: str | None = None,
    *,
    default: object = UNSET,
    factory: Callable[[], object] | None = None,
    tag: int | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field's versions, its tag, and the versions in which it is nullable.

    `factory` names the struct of a field that starts as that struct's default; it is for type checkers only.
    An ignorable field is dropped silently when a version without it is written; any other must be at its default.
    """
    return Declared(versions, default, tag, nullable, ignorable)


class WireType(NamedTuple):
    """The type of a field on the wire: `name` is a key of FIXED, "str", "bytes", "Records", "list" (of `item`) or "struct" (then `struct` is it)."""

    name: str
    item: WireType | None = None
    struct: type[Struct] | None = None


class Field(NamedTuple):
    """One field as the codec compiler sees it; `default` is UNSET where the default is an empty list or a struct."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    default: object
    ignorable: bool


class MessageInfo(NamedTuple):
    """The declaration of a message by @message or @api_message."""

    key: int | None
    versions: Versions
    flexible: Versions


class Struct:
    """Base of all declared classes: equality and a readable form by their fields."""

    __slots__ = ()
    __field_names__: tuple[str, ...] = ()
    __declared__: ClassVar[dict[str, object]] = {}
    __annotations_text__: ClassVar[dict[str, str]] = {}
    __message__: ClassVar[MessageInfo | None] = None
    __plain__: ClassVar[type[Struct]]

    def __init__(self, *args: object, **kwargs: object) -> None:
        plain = type(self).__plain__
        setattr(plain, "__init__", _compile_init(plain))  # noqa: B010  mypy refuses the assignment
        plain.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.__plain__ is not self.__plain__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__field_names__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__field_names__)
        return f"{self.__plain__.__name__}({values})"


@dataclass_transform(field_specifiers=(v,))
def api_message(key: int) -> Callable[[type[T]], type[T]]:
    """Declare a request or a response. The API's row in protocol/api.py has their versions, and which of them are flexible."""
    api = APIS[ApiKey(key)]
    flexible = NONE if api.flexible_from is None else Versions(api.flexible_from, OPEN_END)
    info = MessageInfo(key, Versions(api.oldest, api.max_version), flexible)
    return lambda cls: _slotted(cls, info)


@dataclass_transform(field_specifiers=(v,))
def message(*, versions: str, flexible: str, key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a record, or a header: the record's key, its versions, and which of them are flexible."""
    info = MessageInfo(key, parse_versions(versions), parse_versions(flexible))
    return lambda cls: _slotted(cls, info)


@dataclass_transform(field_specifiers=(v,))
def struct(cls: type[T]) -> type[T]:
    """Declare a struct inside messages; its version is that of the message that is being encoded or decoded."""
    return _slotted(cls, None)


def _slotted(cls: type[T], info: MessageInfo | None) -> type[T]:
    namespace = dict(cls.__dict__)
    annotations: dict[str, str] = namespace.get("__annotations__", {})
    names = tuple(annotations)
    namespace["__declared__"] = {name: namespace.pop(name, UNSET) for name in names}
    namespace["__annotations_text__"] = annotations
    namespace["__field_names__"] = namespace["__slots__"] = names
    namespace["__message__"] = info
    for unwanted in ("__dict__", "__weakref__", "__annotations__"):
        namespace.pop(unwanted, None)
    made: Any = type(cls.__name__, (Struct,), namespace)
    made.__plain__ = made
    finished: type[T] = made
    return finished


def _declared(cls: type[object]) -> type[Struct]:
    """Return the class as the decorators have made it, which type checkers do not see."""
    assert issubclass(cls, Struct), f"{cls.__name__} is not declared by @message or @struct"
    return cls


def info_of(cls: type[object]) -> MessageInfo:
    """Return the arguments of @message for the class."""
    info = _declared(cls).__message__
    if info is None:
        raise TypeError(f"{cls.__name__} is a struct inside messages, not a message")
    return info


def check_version(cls: type[object], version: int) -> MessageInfo:
    """Return the arguments of @message for the class; raise UnsupportedVersion if it does not have the version."""
    info = info_of(cls)
    if version not in info.versions:
        raise UnsupportedVersion(f"{cls.__name__} has versions {info.versions}, not {version}")
    return info


_fields: dict[type[object], tuple[Field, ...]] = {}


def fields(cls: type[object]) -> tuple[Field, ...]:
    """Return the fields of a declared class in wire order."""
    known = _fields.get(cls)
    if known is None:
        made, scope = _declared(cls), vars(sys.modules[cls.__module__])
        known = _fields[cls] = tuple(
            _field(name, text, made.__declared__[name], scope) for name, text in made.__annotations_text__.items()
        )
    return known


def _field(name: str, annotation: str, declared: object, scope: dict[str, Any]) -> Field:
    if not isinstance(declared, Declared):
        declared = Declared(None, declared, None, None, False)
    text = annotation.removesuffix(" | None")
    wire_type = _wire_type(text, scope)
    versions = ALL if declared.versions is None else parse_versions(declared.versions)
    nullable = NONE
    if text != annotation:
        nullable = versions if declared.nullable is None else parse_versions(declared.nullable)
    default = declared.default
    if default is UNSET or default == []:
        default = _ZERO.get(wire_type.name, UNSET)
    return Field(name, wire_type, versions, nullable, declared.tag, default, declared.ignorable)


def _wire_type(text: str, scope: dict[str, Any]) -> WireType:
    if text.startswith("list["):
        return WireType("list", item=_wire_type(text[5:-1], scope))
    if text == "RequestRecords":
        return WireType("Records")
    if text in _ZERO:
        return WireType(text)
    return WireType("struct", struct=scope[text])


def has_list(cls: type[object]) -> bool:
    """Return True if the struct, or a struct in it, has a list: two owners of one default object could both change that list."""
    return any(
        field.type.name == "list" or (field.type.struct is not None and has_list(field.type.struct))
        for field in fields(cls)
    )


_shared_defaults: dict[type[Any], Any] = {}


def shared_default(cls: type[object]) -> Any:
    """Return one read-only object with all defaults, so that absent structs cost neither time nor memory.

    An assignment to one of its fields would change other messages, so it raises: put a new struct in its place.
    """
    known = _shared_defaults.get(cls)
    if known is None:
        methods = {"__slots__": (), "__module__": cls.__module__, "__reduce__": lambda self: (shared_default, (cls,))}
        read_only: Any = type(cls.__name__, (cls,), methods)
        plain, known = cls(), read_only.__new__(read_only)
        for name in _declared(cls).__field_names__:
            setattr(known, name, getattr(plain, name))
        read_only.__setattr__ = _refuse
        _shared_defaults[cls] = known
    return known


def _refuse(self: Any, name: str, value: object) -> None:
    kind = self.__plain__.__name__
    raise AttributeError(f"this {kind} is the shared default: assign a new {kind}({name}=...) to its owner instead")


def maker(cls: Callable[Parameters, T]) -> Callable[Parameters, T]:
    """Return a function with the effect of the constructor, for a hot path: it takes 0.15 us instead of 0.5.

    Python packs the keywords of a class's call into a dict and unpacks them for `__init__`; a function gets them directly.
    The function is compiled at once, which costs start-up time, so few classes have one.
    """
    assert isinstance(cls, type)
    made: Callable[Parameters, T] = _compile(cls, "make", "    self = new(cls)\n", "    return self\n")
    return made


def _compile_init(cls: type[object]) -> Callable[..., None]:
    """Compile the constructor: it takes every field by keyword or position, each with its default."""
    init: Callable[..., None] = _compile(cls, "__init__", "", "")
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _compile(cls: type[object], name: str, begin: str, end: str) -> Any:
    return compile_setter(cls, name, map(_argument, fields(cls)), begin=begin, end=end)


def _argument(field: Field) -> ConstructorArgument:
    if field.default is not UNSET:
        return ConstructorArgument(field.name, field.default)
    if field.type.struct is not None and not has_list(field.type.struct):
        return ConstructorArgument(field.name, shared_default(field.type.struct))
    return ConstructorArgument(field.name, make=field.type.struct or list)


class ConstructorArgument(NamedTuple):
    """An argument of a constructor, with its default or a function that makes the default. An argument without either has to be
    given.
    """

    name: str
    default: object = UNSET
    make: Callable[[], object] | None = None


def compile_setter(
    cls: type[object],
    name: str,
    arguments: Iterable[ConstructorArgument],
    *,
    begin: str = "",
    end: str = "",
    is_frozen: bool = False,
) -> Any:
    """Compile a function that sets its arguments on `self`, which `begin` or the first parameter defines."""
    scope: dict[str, object] = {"UNSET": UNSET, "new": object.__new__, "set": object.__setattr__, "cls": cls}
    parameters, body = [], []
    for each in arguments:
        parameter = value = each.name
        if each.make is not None:
            scope[f"new_{each.name}"] = each.make
            parameter, value = f"{each.name}=UNSET", f"new_{each.name}() if {each.name} is UNSET else {each.name}"
        elif each.default is not UNSET:
            scope[f"_{each.name}"] = each.default
            parameter = f"{each.name}=_{each.name}"
        parameters.append(parameter)
        body.append(f"    set(self, {each.name!r}, {value})\n" if is_frozen else f"    self.{each.name} = {value}\n")
    receiver = [] if begin else ["self"]
    source = f"def {name}({', '.join([*receiver, *parameters])}):\n{begin}{''.join(body)}{end or '    return None'}"
    exec(compile(source, f"<constructor of {cls.__name__}>", "exec"), scope)
    return scope[name]
