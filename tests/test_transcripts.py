"""The runner of golden transcripts: an error names the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts import Interpreter, TranscriptError, check


@pytest.fixture(autouse=True)
def without_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDATE", raising=False)


def adding() -> Interpreter:
    """Return an interpreter: `add 1 2 [times=3]` returns a line and leaves one to be drained; `forget` prints nothing."""
    printed: list[str] = []

    def add(*numbers: str, times: str = "1") -> list[str]:
        printed.append(f"{len(numbers)} numbers")
        return [str(sum(map(int, numbers)) * int(times))]

    def drain() -> list[str]:
        drained = printed.copy()
        printed.clear()
        return drained

    return Interpreter({"add": add, "forget": printed.clear, "blank": lambda: ["a", "", "b"]}, drain)


GOOD = "# A sum.\nadd 1 2 times=3\n----\n9\n2 numbers\n\n# Two comments,\n# one command.\nforget\n----\n\nadd\n----\n0\n0 numbers\n"


def played(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sum.txt"
    path.write_text(text)
    check(path, adding())
    return path.read_text()


def test_a_transcript_that_is_right_passes_and_stays_as_it_is(tmp_path: Path) -> None:
    assert played(tmp_path, GOOD) == GOOD


@pytest.mark.parametrize(
    ("case", "text", "error"),
    [
        ("an unknown command", "add 1\n----\n1\n1 numbers\n\nsubtract 1\n----\n", r"sum.txt:6: unknown command `subtract 1`"),
        ("a command without its separator", "add 1\n\nadd 2\n----\n2\n1 numbers\n", r"sum.txt:1: no ---- below `add 1`"),
        ("a last command without its separator", "add 1\n----\n1\n1 numbers\n\nadd 2\n", r"sum.txt:6: no ---- below `add 2`"),
        ("text after an output", "add 1\n----\n1\n\n1 numbers\n", r"sum.txt:5: no ---- below `1 numbers`"),
        ("a comment at the end", "add\n----\n0\n0 numbers\n\n# No more.\n", r"sum.txt:6: no command"),
        ("an empty file", "", r"sum.txt:1: no command"),
        ("two empty lines", "add\n----\n0\n0 numbers\n\n\nforget\n----\n", r"sum.txt: other empty lines"),
        ("an output with an empty line", "blank\n----\na\n", r"sum.txt:1: blank: an empty line in the output"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) and "\n" not in value else "",
)  # fmt: skip
def test_what_is_no_transcript_fails_with_file_and_line(case: str, text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match=error):
        played(tmp_path, text)


@pytest.mark.parametrize(
    ("case", "output"),
    [("another", "10\n2 numbers\n"), ("a missing", ""), ("a shorter", "9\n"), ("a longer", "9\n2 numbers\nmore\n")],
)
def test_an_output_that_differs_fails_with_file_line_and_both(case: str, output: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"sum.txt:2: add 1 2 times=3"):
        played(tmp_path, f"# A sum.\nadd 1 2 times=3\n----\n{output}")


def test_a_command_that_fails_says_where_it_stands(tmp_path: Path) -> None:
    for command, error in (("add one", ValueError), ("add 1 tiems=3", TypeError), ("forget 1", TypeError)):
        with pytest.raises(error) as raised:
            played(tmp_path, f"forget\n----\n\n{command}\n----\n")
        assert any(f"sum.txt:4: {command}" in note for note in raised.value.__notes__)


def test_update_writes_what_the_commands_gave_and_keeps_the_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPDATE", "1")
    outdated = GOOD.replace("9\n", "wrong\n").replace("forget\n----\n\n", "forget\n----\nsomething\n\n\n")
    assert outdated != GOOD
    assert played(tmp_path, outdated) == GOOD
    with pytest.raises(TranscriptError, match=r"sum.txt:1: unknown command"):
        played(tmp_path, "subtract 1\n----\n")
