"""Rows as tables, JSON lines and YAML, and what they do to characters that steer a terminal."""

from __future__ import annotations

import json

import pytest
import yaml

from ottla.cli.output import escaped_json, print_rows, printable
from ottla.cli.record_format import compile_format, terminal_bytes
from ottla.cli.watching import screen
from ottla.protocol.records.record import Record

#: It clears the screen, by ESC and by C1; DEL; a line written from right to left; half of a pair.
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
