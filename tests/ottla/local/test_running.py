"""The files that `ottla dev` writes for other commands, and those that a killed process leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ottla.local import running
from ottla.local.running import admin_listeners, written_down

ID, OTHER = "6yUmSxXPRDmvTOGV_c0U-Q", "PjfkwQIBRYGFP4JsPGOHgA"
ADMIN = {1: "127.0.0.1:9292", 2: "127.0.0.1:9293"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_listeners_of_a_cluster_are_known_while_it_runs() -> None:
    assert admin_listeners(ID) == {}
    with written_down(ID, ADMIN):
        assert (admin_listeners(ID), admin_listeners(OTHER), admin_listeners(None)) == (ADMIN, {}, {})
    assert admin_listeners(ID) == {} and os.listdir(running.folder()) == []


def test_an_id_that_a_broker_answers_with_names_no_file_elsewhere(state: Path) -> None:
    with written_down(ID, ADMIN):
        (state / "ottla" / "here.json").write_text(json.dumps({"pid": os.getpid(), "admin": {"1": "evil:1"}}))
        assert admin_listeners("../here") == {} and admin_listeners("x" * 300) == {}


def test_a_start_removes_what_a_killed_one_has_left() -> None:
    with written_down(ID, ADMIN):
        path = Path(running.folder()) / f"{OTHER}.json"
        path.write_text(json.dumps({"pid": 2**22 + 1, "admin": {"1": "127.0.0.1:9"}}))
        with written_down("another", {}):
            assert sorted(os.listdir(running.folder())) == [f"{ID}.json", "another.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"pid": 1}', '{"pid": "x", "admin": {}}', '{"pid": 1, "admin": {"a": "b"}}']
)
def test_a_damaged_file_says_nothing(text: str) -> None:
    with written_down(ID, ADMIN):
        (Path(running.folder()) / f"{ID}.json").write_text(text)
        assert admin_listeners(ID) == {}


def test_a_cluster_runs_where_nothing_can_be_written_down(state: Path) -> None:
    state.write_text("a file where the folder should be")
    with written_down(ID, ADMIN):
        assert admin_listeners(ID) == {}
