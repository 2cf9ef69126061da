"""The help of a command: two columns, options by their short name first, long texts wrapped under themselves.

It is a formatter of cyclopts. `ottla start`, `dev`, `fork` and `container` are parsed by argparse, which starts a node sooner;
`ottla/processes/command_parser.py` gives them the same form.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

INDENT = 2
#: A name that is wider has its text in the next line, as in argparse.
NAMES_MAX = 28
WIDTH_MAX = 120
TITLES = {"Parameters": "Options"}


class HelpPage:
    """Prints the panels of a help page as plain text."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        rows = [(_names(entry), _text(entry)) for entry in panel.entries]
        if rows:
            title = str(panel.title)
            _print(console, "\n".join([f"{TITLES.get(title, title)}:", *two_columns(rows, _width(console)), ""]))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        if usage:
            _print(console, f"Usage: {_plain(usage).strip().removeprefix('Usage: ')}\n")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        if text := _plain(description):
            _print(console, "\n".join([*wrapped_text(text, _width(console)), ""]))


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


def _names(entry: HelpEntry) -> str:
    label = [entry.positional_label] if entry.positional_label else []
    names = ", ".join([*label, *entry.positive_shorts, *entry.positive_names, *entry.negative_names])
    # A command and an argument have a name alone; an option has what it takes behind its last name.
    return f"{names} {entry.metavar}" if entry.metavar and not label else names


def _text(entry: HelpEntry) -> str:
    parts = [_plain(entry.description)]
    if entry.choices:
        parts.append(f"[choices: {', '.join(entry.choices)}]")
    if entry.env_var:
        parts.append(f"[${', $'.join(entry.env_var)}]")
    if entry.default not in (None, "False", "True"):  # a flag says what it does, not that it is not given
        parts.append(f"[default: {entry.default}]")
    if entry.required and not entry.positional_label:  # the usage line shows which arguments there have to be
        parts.append("[required]")
    return " ".join(filter(None, parts))


def _plain(text: Any) -> str:
    inner = getattr(text, "primary_renderable", text)  # an InlineText of cyclopts has a Text of rich
    return str(getattr(inner, "plain", inner) or "").rstrip()


def _width(console: Console) -> int:
    return min(console.width, WIDTH_MAX)


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
