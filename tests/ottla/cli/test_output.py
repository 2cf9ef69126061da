"""Rows as tables, JSON lines and YAML, in which control characters of terminals are escaped."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from ottla.cli import output
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import confirm, escaped_json, print_rows, printable, replace_file
from ottla.cli.record_format import compile_format, terminal_bytes
from ottla.cli.watching import screen
from ottla.protocol.records.record import Record

#: The texts clear the screen, by ESC and by C1; others have DEL, a line written from right to left, and half of a surrogate
#: pair.
HOSTILE = "a\x1b[2J\x9b2J\x7f\u202eb\udc80"


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_no_form_prints_a_character_that_steers_the_terminal(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": HOSTILE, "list": [HOSTILE]}], ("name", "list"), output)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()


def test_json_and_yaml_say_the_same_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": HOSTILE[:-1], "n": 1, "replicas": [1, 2]}, {"name": "é €", "n": None, "replicas": []}]
    print_rows(rows, ("name",), "json")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    print_rows(rows, ("name",), "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == rows


def test_printable_text_is_kept() -> None:
    assert printable("orders-é 漢字") == "orders-é 漢字"
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert escaped_json('{"a":"é"}') == '{"a":"é"}'


def test_a_record_on_a_terminal_is_escaped_and_the_format_is_not() -> None:
    record = Record(0, 1, b"\x1bk\xff", b"v\x07\n", (("h", b"\x1b"),))
    write = compile_format("\\x1b[1m%k %v %h %V %k{hex}", terminal_bytes)
    assert write("t", 0, record) == b"\x1b[1m\\x1bk\\xff v\\x07\n h=\\x1b 3 1b6bff"


def test_a_screen_ends_with_how_much_is_missing() -> None:
    lines = [f"line {number}" for number in range(10)]
    shown = screen(lines, 4, 5).replace("\x1b[K", "").splitlines()
    assert shown == ["line ", "line ", "line ", "... 7"]
    assert len(screen(lines, 40, 80).splitlines()) == 10


def test_a_table_on_a_terminal_has_the_same_cells_and_no_escapes_of_its_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": HOSTILE, "is_on": True, "n": 2.5}, {"name": "b", "is_on": False, "n": None}]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows(rows, ("name", "is_on", "n"), "table")
    head, first, second = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()  # bold letters
    assert head.split() == ["NAME", "IS-ON", "N"]
    assert first.split() == [printable(HOSTILE), "yes", "2.5"] and second.split() == ["b", "no", "-"]


def test_yaml_without_its_package_says_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.extras.missing", lambda *names: "-o yaml needs the package PyYAML")
    with pytest.raises(CommandFailed) as failed:
        print_rows([{"a": 1}], ("a",), "yaml")
    assert (failed.value.exit_code, failed.value.remedy) == (USAGE, "use -o json")


def test_a_reader_that_has_gone_gets_the_rest_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*arguments: object) -> None:
        raise BrokenPipeError

    dropped: list[bool] = []
    monkeypatch.setattr(output, "_print", gone)
    monkeypatch.setattr(output.OUTPUT, "drop", lambda: dropped.append(True))
    print_rows([{"a": 1}], ("a",), "table")
    assert dropped == [True]


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    replace_file(str(path), b"old")
    replace_file(str(path), b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["plan.json"]
    with pytest.raises(CommandFailed, match="cannot be written: No such file or directory"):
        replace_file(str(tmp_path / "none" / "plan.json"), b"")


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_only_a_yes_at_a_terminal_loses_anything(
    answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    if goes_on:
        confirm("delete a\x1b?", yes=False)
    else:
        with pytest.raises(CommandFailed, match="nothing was changed"):
            confirm("delete a\x1b?", yes=False)
    assert capsys.readouterr().err == "delete a\\x1b? [y/N] "
    confirm("delete?", yes=True)


def test_a_script_is_not_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    confirm("delete?", yes=False)
    assert capsys.readouterr().err == ""
