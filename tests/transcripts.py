"""Golden transcripts: commands for a harness, each with the output that it gave. `UPDATE=1 pytest` rewrites the files.

    # A comment belongs to the command below it.
    produce 1 3 acks=1
    ----
    1 appends 0

The language is that of etcd's datadriven tests. A word with `=` is an option, the others are arguments: this one calls
`commands["produce"]("1", "3", acks="1")`. The output ends at an empty line; a command without output keeps its `----`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import ndiff
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

SEPARATOR = "----"

#: Returns the first lines of the output, if there are any. The harness returns the others when it is drained.
Command = Callable[..., Iterable[str] | None]


class TranscriptError(Exception):
    """The text is not a transcript, or not one for these commands."""


class Block(NamedTuple):
    """A command with the comments above it, the number of its line and its output."""

    comments: list[str]
    line: int
    command: str
    output: list[str]

    def text(self) -> str:
        return "\n".join([*self.comments, self.command, SEPARATOR, *self.output]) + "\n"


class Interpreter:
    """Runs commands by their names; `drain` returns what the harness has printed since it was last called."""

    def __init__(self, commands: Mapping[str, Command], drain: Callable[[], list[str]]) -> None:
        self.commands = commands
        self._drain = drain

    def run(self, command: str) -> list[str]:
        name, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        output = self.commands[name](*(word for word in words if "=" not in word), **options)
        return [line.rstrip() for line in (*(output or ()), *self._drain())]


def beside(test_file: str) -> list[Path]:
    """The transcripts of an area. They are in the folder `transcripts` beside its test file."""
    return sorted((Path(test_file).parent / "transcripts").glob("*.txt"))


def parse(path: Path) -> list[Block]:
    blocks: list[Block] = []
    comments: list[str] = []
    lines = enumerate(path.read_text().splitlines(), 1)
    for number, line in lines:
        if line.startswith("#"):
            comments.append(line)
        elif line:
            if next(lines, (0, ""))[1] != SEPARATOR:
                raise TranscriptError(f"{path}:{number}: no {SEPARATOR} below `{line}`")
            output = [text for _, text in takewhile(lambda each: each[1], lines)]
            blocks.append(Block(comments, number, line, output))
            comments = []
    if comments or not blocks:
        raise TranscriptError(f"{path}:{number if comments else 1}: no command at the end")
    return blocks


def check(path: Path, interpreter: Interpreter) -> None:
    """Run all commands and compare their output with the file's; with UPDATE=1 write the file instead."""
    blocks = parse(path)
    for block in blocks:
        if block.command.split()[0] not in interpreter.commands:
            raise TranscriptError(f"{path}:{block.line}: unknown command `{block.command}`")
    played = []
    for block in blocks:
        place = f"{path}:{block.line}: {block.command}"
        output = _output(place, interpreter, block.command)
        if output != block.output and not _is_update():
            raise AssertionError("\n".join([f"{place} (UPDATE=1 rewrites the file)", *ndiff(block.output, output)]))
        played.append(block._replace(output=output))
    text = "\n".join(block.text() for block in played)
    if _is_update():
        path.write_text(text)
    elif text != path.read_text():
        raise TranscriptError(f"{path}: other empty lines than one between two commands (UPDATE=1 rewrites the file)")


def _output(place: str, interpreter: Interpreter, command: str) -> list[str]:
    try:
        output = interpreter.run(command)
    except Exception as error:
        error.add_note(place)
        raise
    if not all(output):
        raise TranscriptError(f"{place}: an empty line in the output would end it")
    return output


def _is_update() -> bool:
    return os.environ.get("UPDATE") == "1"
