"""The decorator `dataclass`: Python's own with slots, but the methods are compiled at their first use.

Python compiles `__init__`, `__eq__`, `__repr__` and others of each class when it is declared, which takes 0.15 ms, and 0.3 ms if the
class is frozen: a fifth of the time that a node's imports take. Here a declaration takes 0.02 ms. The first object costs its class
0.05 ms, for `__init__` alone; what else is used of it makes Python's decorator run. tests/protocol/test_dataclass.py compares both.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

DECLARED = "__declared__"
#: What Python's decorator gives to a class, besides `__init__` and the guards of a frozen one.
MADE = (
    "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__repr__", "__eq__", "__hash__", "__replace__"
)[: 7 if sys.version_info >= (3, 13) else 6]  # fmt: skip


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """Declares a class as `dataclasses.dataclass` does with the same arguments. Its fields are all parameters, by position or name."""
    assert slots, "a class with a dictionary is declared by dataclasses.dataclass"

    def declare(cls: type[T]) -> type[T]:
        made: type[T] = _Declared(cls, frozen, eq).made
        return made

    return declare


def declared_fields(cls: type[object]) -> dict[str, Any]:
    """Returns what each field was declared with: MISSING, its default, or a `dataclasses.Field`. Those of the classes above come first."""
    found: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        declared = each.__dict__.get(DECLARED)
        if declared is not None:
            found |= declared.fields
    return found


class _Declared:
    """A declared class as it was written, and `made`, the one with slots that is made of it."""

    __slots__ = ("_cls", "_eq", "_frozen", "fields", "made")

    def __init__(self, cls: type[Any], frozen: bool, eq: bool) -> None:
        self._cls, self._frozen, self._eq = cls, frozen, eq
        namespace = _plain(cls)
        assert "__post_init__" not in namespace
        annotations: dict[str, str] = namespace.get("__annotations__", {})
        names = [name for name, text in annotations.items() if not text.startswith("ClassVar")]
        self.fields = {name: namespace.pop(name, MISSING) for name in names}
        namespace["__slots__"] = tuple(name for name in names if not hasattr(cls.__base__, name))
        namespace[DECLARED] = self
        namespace.setdefault("__init__", self._first_init())
        for name in MADE:
            if not ((name == "__eq__" and not eq) or (name == "__hash__" and not (eq and frozen))):
                namespace.setdefault(name, _Late(self, name))
        made = self.made = _like(cls, namespace)
        if frozen:
            _freeze(made)

    def _first_init(self) -> Callable[..., None]:
        def __init__(*args: Any, **kwargs: Any) -> None:
            made: Any = self.made
            made.__init__ = compile_init(made, declared_fields(made), self._frozen)
            made.__init__(*args, **kwargs)

        return __init__

    def complete(self) -> None:
        """Gives the class what Python makes for it. Two threads may do so at once: they give the same."""
        copy = _like(self._cls, _plain(self._cls))
        full = dataclasses.dataclass(slots=True, frozen=self._frozen, eq=self._eq)(copy)
        for name in MADE:
            if name in full.__dict__:
                setattr(self.made, name, full.__dict__[name])


class _Late:
    """A late attribute: its first use completes the class."""

    __slots__ = ("_declared", "_name")

    def __init__(self, declared: _Declared, name: str) -> None:
        self._declared, self._name = declared, name

    def __get__(self, instance: object | None, owner: type[object]) -> Any:
        self._declared.complete()
        return getattr(self._declared.made if instance is None else instance, self._name)


def _plain(cls: type[object]) -> dict[str, Any]:
    return {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}


def _like(cls: type[object], namespace: dict[str, Any]) -> Any:
    metaclass: Any = type(cls)
    made = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def compile_init(made: type[object], fields: dict[str, Any], frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"UNSET": MISSING, "set_one": object.__setattr__}
    parameters, body = ["self"], []
    for name, default in fields.items():
        value = name
        if isinstance(default, Field):
            assert default.init and default.kw_only is not True
            if default.default_factory is not MISSING:
                scope[f"new_{name}"] = default.default_factory
                scope[f"_{name}"] = MISSING
                value = f"new_{name}() if {name} is UNSET else {name}"
            default = default.default
        if default is not MISSING:
            scope[f"_{name}"] = default
        parameters.append(f"{name}=_{name}" if f"_{name}" in scope else name)
        body.append(f"set_one(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    source = f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(body or ["pass"])
    exec(compile(source, f"<constructor of {made.__qualname__}>", "exec"), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _freeze(made: Any) -> None:
    """Refuses assignments; pickle and copy, which assign as well, get another way."""

    def set_one(self: object, name: str, value: object) -> None:
        if type(self) is made or name in made.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def delete_one(self: object, name: str) -> None:
        if type(self) is made or name in made.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    made.__setattr__, made.__delattr__ = set_one, delete_one
    made.__getstate__, made.__setstate__ = _state, _set_state


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in type(self).__dataclass_fields__]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(type(self).__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)
