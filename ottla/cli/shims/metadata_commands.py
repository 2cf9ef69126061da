"""The commands of the metadata shell on a tree of metadata: ls, cat, cd, pwd, find, tree, man, history, help and exit."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.cli.metadata_tree import Node


class Argument(NamedTuple):
    """The argument of a command: its name, its number of words as in argparse, and its help."""

    name: str
    nargs: str
    help: str


class ShellCommand(NamedTuple):
    """A command of the shell: its function, its argument, and whether only the interactive shell has it."""

    text: str
    argument: Argument | None = None
    interactive_only: bool = False


COMMANDS = {
    "cat": ShellCommand(
        "Show the contents of metadata files.", Argument("targets", "+", "The metadata files to display.")
    ),
    "cd": ShellCommand(
        "Set the current working directory.", Argument("target", "?", "The directory to change to."), True
    ),
    "exit": ShellCommand("Exit the metadata shell.", None, True),
    "find": ShellCommand(
        "Search for nodes in the directory hierarchy.", Argument("paths", "*", "The paths to start at.")
    ),
    "help": ShellCommand("Display this help message.", None, True),
    "history": ShellCommand(
        "Print command history.", Argument("numEntriesToShow", "?", "The number of entries to show."), True
    ),
    "ls": ShellCommand("List metadata nodes.", Argument("targets", "*", "The metadata node paths to list.")),
    "man": ShellCommand(
        "Show the help text for a specific command.", Argument("cmd", "1", "The command to get help text for."), True
    ),
    "pwd": ShellCommand("Print the current working directory.", None, True),
    "tree": ShellCommand(
        "Show the contents of metadata nodes in a tree structure.",
        Argument("targets", "+", "The metadata nodes to display."),
    ),
}
#: The line about `tree` in the help of all commands, with argparse4j's line breaks and spacing.
JUSTIFIED = "Show the contents  of  metadata  nodes  in  a tree\n" + " " * 25 + "structure."
FORMS = {"+": "{0} [{0} ...]", "*": "[{0} [{0} ...]]", "?": "[{0}]", "1": "{0}"}
INDENT = "  "
INTEGERS = range(-(2**31), 2**31)
_GROUP = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"-\d+$")


class WrongCommand(Exception):
    """A line that is no command, or that asks for help. Its text is printed."""


class Leave(Exception):
    """The command `exit`."""


class FoundNode(NamedTuple):
    """A node, and its path from the root."""

    path: tuple[str, ...]
    node: Node

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "/"


class Shell:
    """The working directory and the history. Each command returns the lines that it prints."""

    def __init__(self, root: Node, *, interactive: bool = False) -> None:
        self.root = root
        self.directory = "/"
        self.history: list[str] = []
        self._interactive = interactive

    def run(self, words: Sequence[str], width: int | None = None) -> list[str]:
        """Run a command line. `width` is that of the screen, for ls.

        Raises:
            Leave: it is `exit`.
        """
        words = [word for word in words if word]
        if not words:
            return []
        try:
            arguments = self._parsed(words)
            if words[0] == "ls":
                return list(self._ls(arguments or ["."], width))
            return list(self._runs()[words[0]](arguments))
        except WrongCommand as wrong:
            return [str(wrong)]

    def _runs(self) -> dict[str, Callable[[list[str]], Iterator[str]]]:
        return {
            "cat": self._cat,
            "cd": self._cd,
            "exit": self._exit,
            "find": self._find,
            "help": self._help,
            "history": self._history,
            "man": self._man,
            "pwd": lambda _: iter((self.directory,)),
            "tree": self._tree,
        }

    def _parsed(self, words: Sequence[str]) -> list[str]:
        """Return the argument's words, as argparse4j finds them."""
        name, known = (
            words[0],
            [name for name, each in COMMANDS.items() if self._interactive or not each.interactive_only],
        )
        if name not in known:
            choices = ", ".join(f"'{each}'" for each in known)
            raise WrongCommand(f"invalid choice: '{name}' (choose from {choices})")
        argument, values, is_option = COMMANDS[name].argument, list[str](), True
        for place, word in enumerate(words[1:], 1):
            if is_option and word == "--":
                is_option = False
            elif is_option and word in ("-h", "--help"):
                raise WrongCommand(usage(name, with_help=True))
            elif is_option and word.startswith("-") and not _NUMBER.match(word):
                raise WrongCommand(f"unrecognized arguments: '{word}'")
            elif argument is None or (values and argument.nargs in "?1"):
                raise WrongCommand(f"unrecognized arguments: '{' '.join(words[place:])}'")
            else:
                values.append(word)
        if argument is not None and argument.nargs in "+1" and not values:
            raise WrongCommand("too few arguments")
        return values

    # -- Paths ---------------------------------------------------------------------------------------------------------

    def absolute(self, path: str) -> list[str]:
        """Return the parts of a path from the root, without `.` and `..`."""
        parts: list[str] = []
        for part in (path if path.startswith("/") else f"{self.directory}/{path}").split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return parts

    def nodes(self, path: str) -> list[FoundNode]:
        """Return the nodes that a path with wildcards names."""
        found = [FoundNode((), self.root)]
        for part in self.absolute(path):
            found = [
                FoundNode((*each.path, name), each.node[name])
                for each in found
                if not isinstance(each.node, str)
                for name in sorted(each.node)
                if _matches(name, part)
            ]
        return found

    # -- Commands ------------------------------------------------------------------------------------------------------

    def _ls(self, paths: list[str], width: int | None) -> Iterator[str]:
        files: list[str] = []
        directories: list[tuple[str, list[str]]] = []
        for path in paths:
            found = self.nodes(path)
            if not found:
                yield f"ls: {path}: no such file or directory."
            files += [each.name for each in found if isinstance(each.node, str)]
            directories += [(each.name, sorted(each.node)) for each in found if not isinstance(each.node, str)]
        yield from columns(files, width)
        has_heads, is_first = bool(files) or len(directories) > 1, not files
        for name, children in directories:
            if has_heads and children:
                if not is_first:
                    yield ""
                yield f"{name}:"
            is_first = is_first and not has_heads
            yield from columns(children, width)

    def _cat(self, paths: list[str]) -> Iterator[str]:
        for path in paths:
            found = self.nodes(path)
            if not found:
                yield f"cat: {path}: No such file or directory."
            for each in found:
                yield each.node if isinstance(each.node, str) else f"cat: {path}: Is a directory"

    def _tree(self, paths: list[str]) -> Iterator[str]:
        for path in paths:
            found = self.nodes(path)
            if not found:
                yield f"tree: {path}: No such file or directory."
            for each in found:
                yield from _lines(each.node)

    def _find(self, paths: list[str]) -> Iterator[str]:
        for path in paths or ["."]:
            found = self.nodes(path)
            if not found:
                yield f"find: {path}: no such file or directory."
            for each in found:
                yield from _paths(path, each.node)

    def _cd(self, paths: list[str]) -> Iterator[str]:
        """Change to a directory. If several match, change to the last one."""
        path = paths[0] if paths else "/"
        found = self.nodes(path)
        if not found:
            yield f"cd: {path}: no such directory."
        for each in found:
            if isinstance(each.node, str):
                yield f"cd: {path}: not a directory."
            else:
                self.directory = "/" + "/".join(each.path)

    def _man(self, names: list[str]) -> Iterator[str]:
        if names[0] not in COMMANDS:
            yield f"man: unknown command {names[0]}. Type help to get a list of commands."
            return
        yield from (f"{names[0]}: {COMMANDS[names[0]].text}", "", usage(names[0], with_help=False))

    def _help(self, _: list[str]) -> Iterator[str]:
        choices = ",".join(COMMANDS)
        yield "Welcome to the Apache Kafka metadata shell."
        yield from ("", f"usage:  {{{choices}}} ...", "", "positional arguments:", f"  {{{choices}}}")
        yield from (f"    {name:<20} {JUSTIFIED if name == 'tree' else each.text}" for name, each in COMMANDS.items())

    def _history(self, counts: list[str]) -> Iterator[str]:
        count = _integer("numEntriesToShow", counts[0]) if counts else len(self.history)
        numbered = list(enumerate(self.history))
        yield from (f"{number:>5}  {line}" for number, line in numbered[max(0, len(numbered) - max(0, count)) :])

    def remember(self, line: str) -> None:
        """Add a line to the history, unless it is empty, begins with a blank, or repeats the last one."""
        if line.strip() and not line[0].isspace() and line != (self.history or [""])[-1]:
            self.history.append(line)

    def _exit(self, _: list[str]) -> Iterator[str]:
        raise Leave


def usage(name: str, *, with_help: bool) -> str:
    """Return argparse4j's description of a command, with or without its option --help."""
    argument = COMMANDS[name].argument
    words = [
        name,
        *(["[-h]"] if with_help else []),
        *([FORMS[argument.nargs].format(argument.name)] if argument else []),
    ]
    lines = [f"usage: {' ' * with_help}{' '.join(words)}"]
    if argument is not None:
        lines += ["", "positional arguments:", f"  {argument.name:<22} {argument.help}"]
    if with_help:
        lines += ["", "optional arguments:", f"  {'-h, --help':<22} show this help message and exit"]
    return "\n".join(lines)


def _integer(name: str, text: str) -> int:
    number = int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else None
    if number is None or number not in INTEGERS:
        raise WrongCommand(f"argument {name}: could not convert '{text}' to Integer (For input string: \"{text}\")")
    return number


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name matches the pattern: `*`, `?` and `{a,b}` are wildcards."""
    group = _GROUP.search(pattern)
    if group is None:
        return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
    return any(_matches(name, pattern[: group.start()] + word + pattern[group.end() :]) for word in group[1].split(","))


def _lines(node: Node, depth: int = 0) -> Iterator[str]:
    if isinstance(node, str):
        yield INDENT * depth + node
        return
    for name in sorted(node):
        yield f"{INDENT * depth}{name}:"
        yield from _lines(node[name], depth + 1)


def _paths(path: str, node: Node) -> Iterator[str]:
    yield path
    if not isinstance(node, str):
        for name in sorted(node):
            yield from _paths(f"/{name}" if path == "/" else f"{path}/{name}", node[name])


def columns(names: Sequence[str], width: int | None) -> list[str]:
    """Return the names in as many columns as fit on the screen; one column if there is no screen."""
    for count in range(min(len(names), (width or 0) // 4), 1, -1):
        height = -(-len(names) // count)
        parts = [names[start : start + height] for start in range(0, len(names), height)]
        widths = [max(map(len, part)) + 2 for part in parts]
        if len(parts) == count and sum(widths) <= (width or 0):
            rows = ([part[line] for part in parts if line < len(part)] for line in range(height))
            return ["".join(name.ljust(size) for name, size in zip(row, widths, strict=False)).rstrip() for row in rows]
    return list(names)
