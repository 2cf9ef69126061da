"""The help of a command: two columns, options by their short name first, long texts wrapped within their column.

`ottla start`, `dev`, `fork` and `container` are parsed by argparse; `ottla/processes/command_parser.py` gives them the same form.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from inspect import getdoc
from typing import Any

from ottla.cli.app import App, CommandOption, options_of

INDENT = 2
#: A wider name has its text in the next line, as in argparse.
NAMES_MAX = 28
WIDTH_MAX = 120
HELP_ROW = ("-h, --help", "Show this page.")


def command_help(app: App) -> str:
    """Return the help of a command that has verbs."""
    rows = [(verb, _paragraphs(app.function(verb))[0]) for verb in app.verbs]
    return _page(f"ottla {app.name} COMMAND", app.help, {"Commands": rows, "Options": [HELP_ROW]})


def verb_help(words: str, function: Callable[..., Any]) -> str:
    """Return the help of one verb, or of a command without verbs; `words` are the words that call it."""
    options = options_of(function)
    places = [option for option in options if not option.names]
    parts = {
        "Arguments": [(option.label, _text(option)) for option in places],
        "Options": [*((_names(option), _text(option)) for option in options if option.names), HELP_ROW],
    }
    usage = " ".join([words, "[OPTIONS]", *map(_in_usage, places)])
    return _page(usage, "\n\n".join(_paragraphs(function)), parts)


def two_columns(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return the lines of a table of names and their texts, which are wrapped in their own column."""
    first = min(NAMES_MAX, max(len(name) for name, _ in rows)) + 2
    margin = " " * (INDENT + first)
    lines = []
    for name, text in rows:
        parts = textwrap.wrap(text, max(20, width - len(margin)), break_on_hyphens=False)
        begin = f"{' ' * INDENT}{name:{first}}"
        if len(name) + 2 > first and parts:
            lines += [begin.rstrip(), *(margin + part for part in parts)]
        else:
            lines += [(begin + "".join(parts[:1])).rstrip(), *(margin + part for part in parts[1:])]
    return lines


def wrapped_text(text: str, width: int) -> list[str]:
    """Return the lines of a description: paragraphs are filled, and one with an indented line is kept as it is written."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        own = paragraph.split("\n")
        is_kept = any(line.startswith(" ") for line in own)
        lines += [*(own if is_kept else textwrap.wrap(" ".join(own), width, break_on_hyphens=False)), ""]
    return lines[:-1]


def _page(usage: str, text: str, parts: dict[str, list[tuple[str, str]]]) -> str:
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
    lines = [f"Usage: {usage}", "", *wrapped_text(text, width)]
    for title, rows in parts.items():
        if rows:
            lines += ["", f"{title}:", *two_columns(rows, width)]
    return "\n".join(lines)


def _paragraphs(function: Callable[..., Any]) -> list[str]:
    return (getdoc(function) or "").split("\n\n")


def _in_usage(option: CommandOption) -> str:
    name = f"{option.label}..." if option.is_list else option.label
    return name if option.default is MISSING else f"[{name}]"


def _names(option: CommandOption) -> str:
    names = ", ".join(sorted(option.names, key=len))
    return names if option.is_flag else f"{names} {'CHOICE' if option.choices else option.kind.__name__.upper()}"


def _text(option: CommandOption) -> str:
    parts = [option.help]
    if option.choices:
        parts.append(f"[choices: {', '.join(option.choices)}]")
    if option.env_var:
        parts.append(f"[${option.env_var}]")
    if option.default is MISSING:
        parts += ["[required]"] if option.names else []  # the usage line shows which arguments are required
    elif option.default is not None and not option.is_flag:  # the help of a flag says what happens if it is given
        parts.append(f"[default: {option.default}]")
    return " ".join(filter(None, parts))
