"""The commands of the metadata shell on a tree of metadata: ls, cat, cd, pwd, find, tree, man, history, help and exit."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from ottla.cli.metadata_tree import Node
from ottla.cli.shims.tool import TreeParser

#: What each command does, what its arguments are, and whether only the interactive shell has it.
COMMANDS: dict[str, tuple[str, tuple[str, str | int, str] | None, bool]] = {
    "cat": ("Show the contents of metadata files.", ("targets", "+", "The metadata files to display."), False),
    "cd": ("Set the current working directory.", ("target", "?", "The directory to change to."), True),
    "exit": ("Exit the metadata shell.", None, True),
    "find": ("Search for nodes in the directory hierarchy.", ("paths", "*", "The paths to start at."), False),
    "help": ("Display this help message.", None, False),
    "history": ("Print command history.", ("numEntriesToShow", "?", "The number of entries to show."), True),
    "ls": ("List metadata nodes.", ("targets", "*", "The metadata node paths to list."), False),
    "man": ("Show the help text for a specific command.", ("cmd", 1, "The command to get help text for."), True),
    "pwd": ("Print the current working directory.", None, True),
    "tree": (
        "Show the contents of metadata nodes in a tree structure.",
        ("targets", "+", "The metadata nodes to display."),
        False,
    ),
}
INDENT = "  "
_GROUP = re.compile(r"\{([^{}]*)\}")


class WrongCommand(Exception):
    """A line that is no command; its text is printed."""


class Leave(Exception):
    """The command `exit`."""


class _Parser(TreeParser):
    def error(self, message: str) -> NoReturn:
        raise WrongCommand(self.translated(message))


class Found(NamedTuple):
    """A node, and the last part of its path."""

    name: str
    node: Node


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
        while words and not words[-1]:
            words = words[:-1]
        if not words:
            return []
        try:
            arguments = self._parsed(words)
        except WrongCommand as wrong:
            return [str(wrong)]
        if words[0] == "ls":
            return list(self._ls(arguments or ["."], width))
        return list(self._runs()[words[0]](arguments))

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
        known = [name for name, (_, _, only) in COMMANDS.items() if self._interactive or not only]
        if words[0] not in known:
            shown = ", ".join(f"'{name}'" for name in known)
            raise WrongCommand(f"invalid choice: '{words[0]}' (choose from {shown.replace(chr(39), '')})")
        parser = _Parser(words[0])
        if argument := COMMANDS[words[0]][1]:
            parser.add_argument(argument[0], nargs=argument[1])
        found = vars(parser.parse_args(list(words[1:])))
        values = next(iter(found.values()), None)
        return [] if values is None else [values] if isinstance(values, str) else list(values)

    # -- Paths ---------------------------------------------------------------------------------------------------------

    def absolute(self, path: str) -> list[str]:
        """Returns the parts of a path from the root, without `.` and `..`."""
        parts: list[str] = []
        for part in (path if path.startswith("/") else f"{self.directory}/{path}").split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return parts

    def nodes(self, path: str) -> list[Found]:
        """Returns the nodes that a path with wildcards names."""
        found = [Found("/", self.root)]
        for part in self.absolute(path):
            found = [
                Found(name, each.node[name])
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
        path = paths[0] if paths else "/"
        found = self.nodes(path)
        if not found:
            yield f"cd: {path}: no such directory."
        elif isinstance(found[0].node, str):
            yield f"cd: {path}: not a directory."
        else:
            self.directory = "/" + "/".join(self.absolute(path))

    def _man(self, names: list[str]) -> Iterator[str]:
        if names[0] not in COMMANDS:
            yield f"man: unknown command {names[0]}. Type help to get a list of commands."
            return
        text, argument, _ = COMMANDS[names[0]]
        yield from (f"{names[0]}: {text}", "")
        parser = TreeParser(names[0])
        if argument:
            parser.add_argument(argument[0], nargs=argument[1], help=argument[2])
        yield parser.format_help()

    def _help(self, _: list[str]) -> Iterator[str]:
        yield "Welcome to the Apache Kafka metadata shell."
        yield ""
        yield from (f"{name:<20}{text}" for name, (text, _, only) in COMMANDS.items() if self._interactive or not only)

    def _history(self, counts: list[str]) -> Iterator[str]:
        count = int(counts[0]) if counts and counts[0].isdecimal() else len(self.history)
        numbered = list(enumerate(self.history, 1))
        yield from (f"{number:>5}  {line}" for number, line in numbered[max(0, len(numbered) - count) :])

    def _exit(self, _: list[str]) -> Iterator[str]:
        raise Leave


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is meant: `*`, `?` and `{a,b}` are wildcards."""
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
            yield from _paths(path + name if path == "/" else f"{path}/{name}", node[name])


def columns(names: Sequence[str], width: int | None) -> list[str]:
    """Returns the names in as many columns as the screen has room for; one where there is no screen."""
    for count in range(min(len(names), (width or 0) // 4), 1, -1):
        height = -(-len(names) // count)
        parts = [names[start : start + height] for start in range(0, len(names), height)]
        widths = [max(map(len, part)) + 2 for part in parts]
        if len(parts) == count and sum(widths) <= (width or 0):
            rows = ([part[line] for part in parts if line < len(part)] for line in range(height))
            return ["".join(name.ljust(size) for name, size in zip(row, widths, strict=False)).rstrip() for row in rows]
    return list(names)
