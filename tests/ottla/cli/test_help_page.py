"""The help has one form for all commands, with either library that parses them."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from ottla.__main__ import main
from ottla.cli.command_table import COMMANDS
from ottla.cli.help_page import wrapped_text

WIDTH = 80


def help_of(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with suppress(SystemExit):  # argparse ends in this way
        main([*words, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_of_one_form(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of([name], capsys, monkeypatch)
    usage, _, first, *_ = text.splitlines()
    assert usage.startswith(f"Usage: ottla {name}"), text
    assert first, text
    assert set(re.findall(r"^[A-Z]\w+:$", text, re.M)) <= {"Arguments:", "Options:", "Commands:"}
    # not the paragraphs of a description
    options = re.split(r"^(?:Arguments|Options|Commands):$", text, flags=re.M)[1:]
    assert max(len(line) for part in options for line in part.splitlines()) <= WIDTH, text
    assert "[default: False]" not in text
    # Continuation lines stand under the text that they continue.
    assert all(re.match(r"$|  ", line) for part in options for line in part.splitlines()), text


def test_long_texts_are_wrapped_in_their_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(["consume"], capsys, monkeypatch).splitlines()
    at = next(index for index, line in enumerate(lines) if "-s, --from" in line)
    begin = lines[at].index("earliest")
    assert lines[at].startswith("  -s, --from STR")
    assert lines[at + 1].startswith(" " * begin) and lines[at + 1][begin] != " "


def test_a_paragraph_with_an_indented_line_is_kept_as_it_is() -> None:
    text = "Some words that\nare filled.\n\nblock:\n  one: 1   # kept\n\nEnd."
    assert wrapped_text(text, 60) == ["Some words that are filled.", "", "block:", "  one: 1   # kept", "", "End."]
