"""The messages of `ottla sql` and `ottla table serve` about a place without tables, and about wrong options and statements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "duckdb")

from ottla.cli.commands import sql as command
from ottla.cli.errors import FAILED, OK, USAGE
from ottla.tables import catalog_server
from ottla.tables.catalog_server import CatalogSettings
from tests.ottla.conftest import Finished, run_here


def sql(folder: Path, *words: str) -> Finished:
    return run_here("sql", "--at", str(folder), *words)


def test_a_place_without_tables_says_so_beside_an_empty_list(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "never-written"):
        done = sql(folder)
        assert (done.code, done.out.split()) == (OK, ["TABLE", "TOPIC", "FORMAT"])
        assert done.err == f"there is no table below file://{folder}\n"
        assert sql(folder, "-o", "json").out == ""


@pytest.mark.parametrize("statement", ["", " ", "-- a comment", ";"])
def test_a_text_without_a_statement_is_a_wrong_usage(tmp_path: Path, statement: str) -> None:
    done = sql(tmp_path, "--", statement)
    assert done.code == USAGE and "there is no statement in it" in done.err


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select * from nothing", "nothing does not exist"),
        ("selekt 1", "syntax error"),
        ("copy (select 1) to 'out'", "disabled by configuration"),
        ("install httpfs", "disabled"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
    ],
)
def test_what_duckdb_does_not_take_names_the_list_of_tables(tmp_path: Path, statement: str, said: str) -> None:
    done = sql(tmp_path, statement)
    assert done.code == USAGE and said in done.err
    assert f"`ottla sql --at {tmp_path}` lists the tables" in done.err
    assert list(tmp_path.iterdir()) == []


def test_values_of_each_type_are_written_as_json_that_any_reader_takes(tmp_path: Path) -> None:
    statement = (
        "select 1.5::decimal(4,2) as d, 'nan'::double as n, 'infinity'::double as i, '-infinity'::double as m, "
        "'\\xFF\\x00'::blob as b, 'a'::blob as t, null as x, date '2026-01-02' as day, timestamp '2026-01-02 03:04:05' as at, "
        "time '03:04:05' as hour, [1, null] as l, {'a': 'é', 'b': 'z'::blob} as s"
    )
    (line,) = sql(tmp_path, statement, "-o", "json").out.splitlines()

    def never(text: str) -> Any:
        raise AssertionError(f"{text} is not JSON")

    assert json.loads(line, parse_constant=never) == {
        "d": "1.50", "n": "NaN", "i": "Infinity", "m": "-Infinity", "b": "\\xff00", "t": "a", "x": None, "day": "2026-01-02",
        "at": "2026-01-02T03:04:05", "hour": "03:04:05", "l": [1, None], "s": {"a": "é", "b": "z"},
    }  # fmt: skip
    table = sql(tmp_path, statement).out
    assert '{"a": "é", "b": "z"}' in table and "[1, null]" in table


def test_a_table_on_a_terminal_ends_at_a_bound_and_json_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROWS_MAX", 3)
    shown = sql(tmp_path, "select * from range(5)")
    assert len(shown.out.splitlines()) == 4
    assert shown.err == "these are the first 3 rows: -o json has all of them\n"
    assert len(sql(tmp_path, "select * from range(5)", "-o", "json").out.splitlines()) == 5
    assert sql(tmp_path, "select * from range(3)").err == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--option endpoint", USAGE, "--option endpoint is not NAME=VALUE"),
        ("--at nowhere://x", FAILED, "nowhere://x"),
    ],
)
@pytest.mark.parametrize("name", ["sql", "table serve"])
def test_a_location_and_an_option_that_are_none(name: str, words: str, code: int, said: str) -> None:
    at = [] if "--at" in words else ["--at", "."]
    done = run_here(*name.split(), *at, *words.split())
    assert done.code == code and said in done.err, done.err


# -- table serve


def serve(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Finished, list[CatalogSettings]]:
    """Return the output, and the settings with which a server would run. No server is run."""
    begun: list[CatalogSettings] = []

    async def run(settings: CatalogSettings, application: object, ready: Any) -> None:
        begun.append(settings)
        ready("http://here:1")

    monkeypatch.setattr(catalog_server, "serve", run)
    return run_here("table", "serve", *words), begun


def test_it_serves_this_machine_alone_unless_an_option_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done, begun = serve(monkeypatch, "--at", str(tmp_path))
    assert (done.code, done.err) == (OK, "")
    assert done.out == f"tables of file://{tmp_path} at http://here:1\n"
    assert [(each.host, each.port) for each in begun] == [("localhost", 8181)]
    done, begun = serve(monkeypatch, "--at", str(tmp_path), "--listen", "[::]:0", "--allowed-host", "lake")
    assert done.err == "everybody who reaches [::]:0 may see which tables there are: --users names a file of logins\n"
    assert [(each.host, each.port) for each in begun] == [("::", 0)]
    logins = tmp_path / "logins"
    logins.write_text("ann: secret\n")
    done, begun = serve(monkeypatch, "--at", str(tmp_path), "--listen", "0.0.0.0:0", "--users", str(logins))
    assert (done.err, len(begun)) == ("", 1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--listen x", USAGE, "--listen: 'x' is not HOST:PORT"),
        ("--listen x:99999", USAGE, "is not from 0 to 65535"),
        ("--cert nothing", USAGE, "--key"),
        ("--users nothing", USAGE, "--users nothing: "),
        ("--users {folder}", USAGE, "Is a directory"),
        ("--users {file}", USAGE, "line 1: it must be NAME: PASSWORD"),
        ("--at {file}", FAILED, "Not a directory"),
    ],
)
def test_nothing_is_served_when_a_word_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, code: int, said: str
) -> None:
    file = tmp_path / "file"
    file.write_text("ann\n")
    given = words.format(folder=tmp_path, file=file).split()
    done, begun = serve(monkeypatch, *([] if "--at" in words else ["--at", str(tmp_path)]), *given)
    assert (done.code, done.out, begun) == (code, "", []), done.err
    assert said in done.err
