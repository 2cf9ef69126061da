"""The declaration of values and states: @frozen, @mutable and @entity make what `dataclass(slots=True)` makes, in a tenth of the time.

`dataclass` compiles up to six methods of a class as text when its module is imported: for the classes of a node a quarter of its
start. Here the methods are functions that all classes have in common, and the constructor alone is compiled, when it is first called.
`dataclasses.replace` and `fields` take their objects. They are for classes that a node imports; a class of which a process has few is
a dataclass. There is no `__post_init__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from ottla.protocol.schema import ConstructorArgument, compile_setter

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Declare a value: its fields are set once, and values with equal fields are equal and have one hash."""
    return _slotted(cls, _OF_VALUES, is_frozen=True)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """Declare a state, whose fields change: states with equal fields are equal, and have no hash."""
    return _slotted(cls, _OF_STATES)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def entity(cls: type[T]) -> type[T]:
    """Declare a state that is equal to itself alone."""
    return _slotted(cls, _OF_ENTITIES)


def _slotted(cls: type[T], methods: Mapping[str, Any], *, is_frozen: bool = False) -> type[T]:
    below = [vars(base) for base in cls.__mro__[1:]]
    assert all("__fields__" in base or "__dataclass_fields__" not in base for base in below), "a dataclass is below it"
    namespace = dict(cls.__dict__)
    annotations: Mapping[str, str] = namespace.get("__annotations__", {})
    own = [name for name, text in annotations.items() if not text.startswith("ClassVar")]
    inherited: dict[str, object] = getattr(cls, "__fields__", {})
    declared = inherited | {name: namespace.pop(name, MISSING) for name in own}
    compared = [name for name, default in declared.items() if not isinstance(default, Field) or default.compare]
    for unwanted in ("__dict__", "__weakref__", *own):
        namespace.pop(unwanted, None)

    def first(self: object, *args: object, **kwargs: object) -> None:
        made.__init__ = _compile_init(made, declared, is_frozen)
        made.__init__(self, *args, **kwargs)

    namespace |= {
        "__init__": first,
        "__fields__": declared,
        "__match_args__": tuple(declared),
        "__key__": attrgetter(*compared) if compared else type,
        "__slots__": tuple(name for name in own if name not in inherited),
    }
    kind: Any = type(cls)
    made: Any = kind(cls.__name__, cls.__bases__, {**methods, **namespace})
    made.__qualname__ = cls.__qualname__
    finished: type[T] = made
    return finished


def _compile_init(cls: type[object], declared: Mapping[str, object], is_frozen: bool) -> Callable[..., None]:
    arguments = (_argument(name, default) for name, default in declared.items())
    init: Callable[..., None] = compile_setter(cls, "__init__", arguments, is_frozen=is_frozen)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _argument(name: str, declared: object) -> ConstructorArgument:
    default: object = declared
    if isinstance(declared, Field):
        factory: Any = declared.default_factory
        if factory is not MISSING:
            return ConstructorArgument(name, make=factory)
        default = declared.default
    return ConstructorArgument(name) if default is MISSING else ConstructorArgument(name, default)


class _DataclassFields:
    """The fields in the form that the functions of `dataclasses` expect. They are made when one of these is called."""

    def __get__(self, one: object, cls: Any) -> dict[str, Field[Any]]:
        given = {name: default for name, default in cls.__fields__.items() if default is not MISSING}
        # A class without a docstring would be given its signature as text, which takes a millisecond.
        said = {"__annotations__": dict.fromkeys(cls.__fields__, "Any"), "__doc__": "The fields."}
        plain = type(cls.__name__, (), given | said)
        made = cls.__dataclass_fields__ = {
            each.name: each for each in fields(dataclass(init=False, repr=False, eq=False)(plain))
        }
        return made


# Methods of all classes.


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    key = self.__class__.__key__
    return key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(self.__class__.__key__(self))


def _text(self: Any) -> str:
    shown = ((name, default) for name, default in self.__fields__.items())
    said = (
        f"{name}={getattr(self, name)!r}" for name, default in shown if not isinstance(default, Field) or default.repr
    )
    return f"{self.__class__.__qualname__}({', '.join(said)})"


def _refuse(self: object, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _taken(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__fields__]


def _given(self: Any, values: list[object]) -> None:
    for name, each in zip(self.__fields__, values, strict=True):
        object.__setattr__(self, name, each)


_OF_ENTITIES = {"__repr__": _text, "__dataclass_fields__": _DataclassFields()}
_OF_STATES = _OF_ENTITIES | {"__eq__": _equal, "__hash__": None}
_OF_VALUES = _OF_STATES | {
    "__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _taken, "__setstate__": _given,
}  # fmt: skip
