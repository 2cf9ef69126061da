"""A command as functions: its verbs, and the arguments and options that their parameters are.

    app = App("topic", "Topics: list, create, ...")

    @app.command
    async def create(name: str, /, *, partitions: Annotated[int, Parameter(help="How many.")] = -1) -> None: ...

A parameter before the `/` is an argument, which is known by its position; one after the `*` is an option. Its annotation is
`str`, `int`, `float`, `bool`, `Path`, a `Literal` of words, a list of these, or a group of options; None may be its default. A
flag whose default is True is switched off by `--no-...`, and its help says what it does then. Only the annotations of the verb
in the command line are read, so that no other verb's imports take time. `ottla/cli/word_parser.py` parses, and
`ottla/cli/help_page.py` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from inspect import Parameter as Place
from inspect import signature
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Parameter(NamedTuple):
    """The annotation of a parameter beside its type: other names of its option, its help, and an environment variable."""

    name: str | tuple[str, ...] = ()
    help: str = ""
    env_var: str = ""


@dataclass_transform(frozen_default=True)
def option_group(cls: type[T]) -> type[T]:
    """Declare options that several verbs have: a frozen dataclass with a default for each field."""
    return dataclass(frozen=True)(cls)


class CommandOption(NamedTuple):
    """An argument or an option of a verb."""

    #: The parameter of the function. If it is a group of options, `field` is the group's field.
    parameter: str
    field: str | None
    group: type | None
    #: The spellings of an option; an argument has none.
    names: tuple[str, ...]
    #: str, int, float, bool or Path. For a list it is the type of an item.
    kind: type
    #: The words that it takes, if only some are valid.
    choices: tuple[str, ...]
    is_list: bool
    #: MISSING means that the command line must have it.
    default: object
    env_var: str
    help: str

    @property
    def key(self) -> tuple[str, str | None]:
        return self.parameter, self.field

    @property
    def is_flag(self) -> bool:
        return self.kind is bool

    @property
    def label(self) -> str:
        """Return its name in messages and in the help."""
        return self.names[0] if self.names else (self.field or self.parameter).strip("_").upper().replace("_", "-")


class App:
    """A command of `ottla`: one function, or one for each of its verbs."""

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.help = help
        #: The function of each verb, or the name of the module that has one of that name.
        self.verbs: dict[str, Callable[..., Any] | str] = {}
        self.default_command: Callable[..., Any] | None = None

    def function(self, verb: str) -> Callable[..., Any]:
        """Return the function of a verb. If it is in another module, that module is imported."""
        found = self.verbs[verb]
        if isinstance(found, str):
            made: Callable[..., Any] = getattr(import_module(found), verb)
            return made
        return found

    def elsewhere(self, verb: str, module: str) -> None:
        """Add a verb whose function is in another module, because it imports more than the other verbs."""
        self.verbs[verb] = module

    def command(self, function: F, name: str | None = None) -> F:
        """Add a verb that has the function's name."""
        self.verbs[name or function.__name__.strip("_").replace("_", "-")] = function
        return function

    def named(self, name: str) -> Callable[[F], F]:
        """Return a decorator that adds a verb of this name."""
        return lambda function: self.command(function, name)

    def default(self, function: F) -> F:
        """Set the function of a command without verbs."""
        self.default_command = function
        return function


def options_of(function: Callable[..., Any]) -> list[CommandOption]:
    """Return the arguments and options of a verb, as its parameters declare them."""
    hints = get_type_hints(function, include_extras=True)
    found: list[CommandOption] = []
    for name, parameter in signature(function).parameters.items():
        hint, default = hints[name], MISSING if parameter.default is Place.empty else parameter.default
        if is_dataclass(hint):
            found += _fields_of(name, hint, default)
        else:
            found.append(_option(name, None, hint, default, by_place=parameter.kind is Place.POSITIONAL_ONLY))
    return found


def _fields_of(parameter: str, group: Any, default: object) -> Iterator[CommandOption]:
    hints: Mapping[str, object] = get_type_hints(group, include_extras=True)
    for field in fields(group):
        own = field.default if default is MISSING else getattr(default, field.name)
        yield _option(parameter, field.name, hints[field.name], own, by_place=False)._replace(group=group)


def _option(parameter: str, field: str | None, hint: Any, default: object, *, by_place: bool) -> CommandOption:
    said, hint = _unfolded(hint)
    is_list = get_origin(hint) is list
    if is_list:
        _, hint = _unfolded(get_args(hint)[0])
    choices: tuple[str, ...] = get_args(hint) if get_origin(hint) is Literal else ()
    names = (said.name,) if isinstance(said.name, str) else tuple(said.name)
    if not names and not by_place:
        names = (f"--{(field or parameter).strip('_').replace('_', '-')}",)
    if default is True:
        names = tuple(f"--no-{name.removeprefix('--')}" for name in names)
    kind = str if choices else hint
    return CommandOption(
        parameter, field, None, () if by_place else names, kind, choices, is_list, default, said.env_var, said.help
    )


def _unfolded(hint: Any) -> tuple[Parameter, Any]:
    """Return the annotation's Parameter, and the type without None."""
    said = Parameter()
    while True:
        if get_origin(hint) is Annotated:
            said = next((each for each in hint.__metadata__ if isinstance(each, Parameter)), said)
            hint = hint.__origin__
        elif get_origin(hint) in (Union, UnionType):
            (hint,) = (each for each in get_args(hint) if each is not NoneType)
        else:
            return said, hint
