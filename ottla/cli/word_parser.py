"""The parser of a command line's words, by the parameters of a verb (`ottla/cli/app.py`).

An option may stand before or after arguments, and several times if it is a list. Its value is the next word or follows `=`.
Short flags may be written together, and a short option together with its value. A word after `--` is an argument, whatever it
begins with.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING
from inspect import BoundArguments, signature
from typing import Any

from ottla.cli.app import CommandOption, options_of
from ottla.cli.errors import USAGE, CommandFailed
from ottla.client.failures import did_you_mean

END_OF_OPTIONS = "--"
HELP = ("--help", "-h")


class FromEnvironment(str):
    """The text of an environment variable. The command line wins over it."""


def asks_for_help(words: Sequence[str]) -> bool:
    """Return True if one of the words asks for the help."""
    before = words[: words.index(END_OF_OPTIONS)] if END_OF_OPTIONS in words else words
    return any(word in HELP for word in before)


def is_option(word: str) -> bool:
    """Return whether a word begins as an option does; `-` and negative numbers do not."""
    return word.startswith("-") and word != "-" and not word[1:2].isdigit() and word[1:2] != "."


def bind(function: Callable[..., Any], words: Sequence[str]) -> BoundArguments:
    """Return the arguments that a verb is called with.

    Raises:
        CommandFailed: the verb does not take these words. The failure may have no hint.
    """
    reader = _Reader(options_of(function))
    reader.read(words)
    return reader.bound(function)


class _Reader:
    """A reader of one command line: it collects the values of options."""

    def __init__(self, options: Sequence[CommandOption]) -> None:
        self._options = options
        self._named = {name: option for option in options for name in option.names}
        self._given: dict[tuple[str, str | None], Any] = {}

    def read(self, words: Sequence[str]) -> None:
        left = list(reversed(words))
        places: list[str] = []
        while left:
            word = left.pop()
            if word == END_OF_OPTIONS:
                places += reversed(left)
                break
            if is_option(word):
                self._read_option(word, left)
            else:
                places.append(word)
        self._read_places(places)
        self._read_environment()

    def bound(self, function: Callable[..., Any]) -> BoundArguments:
        """Return the call with the values that were read. Missing options have their defaults."""
        call = BoundArguments(signature(function), OrderedDict())
        groups: dict[str, tuple[type, dict[str, Any]]] = {}
        for option in self._options:
            if option.default is MISSING and option.key not in self._given:
                raise _wrong(f"{option.label} is missing")
            if option.group is not None and option.field is not None:
                _, values = groups.setdefault(option.parameter, (option.group, {}))
                values[option.field] = self._given.get(option.key, option.default)
            elif option.key in self._given:
                call.arguments[option.parameter] = self._given[option.key]
        for name, (group, values) in groups.items():
            call.arguments[name] = group(**values)
        return call

    def _read_option(self, word: str, left: list[str]) -> None:
        name, equals, value = word.partition("=")
        option = self._named.get(name)
        if option is None and not name.startswith("--") and word[:2] in self._named:
            name, option, rest = word[:2], self._named[word[:2]], word[2:]
            if option.is_flag and is_option(f"-{rest}"):
                left.append(f"-{rest}")  # flags that are written together
                equals = ""
            else:
                equals, value = "=", rest.removeprefix("=")
        if option is None:
            raise _wrong(f"there is no option {name!r}", did_you_mean(name, self._named))
        if option.is_flag:
            if equals:
                raise _wrong(f"{name} takes no value")
            self._give(option, name, option.default is not True)
            return
        if not equals:
            if not left or is_option(left[-1]):
                raise _wrong(
                    f"{name} needs a value", f"one that begins with a dash is written {name}=VALUE" if left else None
                )
            value = left.pop()
        self._give(option, name, _value(option, name, value))

    def _give(self, option: CommandOption, name: str, value: object) -> None:
        if option.is_list:
            self._given.setdefault(option.key, []).append(value)
        elif option.key in self._given:
            raise _wrong(f"{name} is there twice")
        else:
            self._given[option.key] = value

    def _read_places(self, places: Sequence[str]) -> None:
        left = list(places)
        for option in self._options:
            if option.names or not left:
                continue
            if option.is_list:
                self._given[option.key] = [_value(option, option.label, word) for word in left]
                left = []
            else:
                self._given[option.key] = _value(option, option.label, left.pop(0))
        if left:
            raise _wrong(f"{left[0]!r} is one word too many")

    def _read_environment(self) -> None:
        for option in self._options:
            text = os.environ.get(option.env_var, "") if option.env_var else ""
            if text and option.key not in self._given:
                value = _value(option, f"${option.env_var}", text)
                one = FromEnvironment(value) if isinstance(value, str) else value
                self._given[option.key] = [one] if option.is_list else one


def _value(option: CommandOption, name: str, text: str) -> object:
    """Return the value of a word."""
    if option.choices:
        if text not in option.choices:
            raise _wrong(f"{name} {text!r} is none of {', '.join(option.choices)}", did_you_mean(text, option.choices))
        return text
    if option.kind is int:
        with suppress(ValueError):
            return int(text)
        raise _wrong(f"{name} {text!r} is no whole number")
    if option.kind is float:
        with suppress(ValueError):
            if math.isfinite(number := float(text)):
                return number
        raise _wrong(f"{name} {text!r} is no number")
    return option.kind(text)


def _wrong(cause: str, remedy: str | None = None) -> CommandFailed:
    return CommandFailed(cause, remedy, USAGE)
