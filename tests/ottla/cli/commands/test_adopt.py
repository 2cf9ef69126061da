"""`ottla adopt` as a user runs it, on the files of Apache Kafka 3.7.2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.__main__ import main
from ottla.cli.errors import FAILED, OK, USAGE
from tests.ottla.node.adoption.recorded import CLUSTER_ID, contents, unpacked


def starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Return the list of properties with which nodes would run. No node is run."""
    started: list[dict[str, str]] = []

    def run(properties: dict[str, str], where: dict[str, str]) -> int:
        started.append(properties)
        return OK

    monkeypatch.setattr("ottla.node.process.run", run)
    return started


def test_a_dry_run_prints_what_was_found_and_what_will_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = unpacked(tmp_path)
    before = contents(directory)
    assert main(["adopt", str(directory), "--dry-run"]) == OK
    out, err = capsys.readouterr()
    assert ["cluster_id", CLUSTER_ID] in [line.split() for line in out.splitlines()]
    assert "change: no file is converted" in err and "  node.id=1\n" in err
    assert err.endswith("nothing was changed (--dry-run)\n") and contents(directory) == before


def test_programs_get_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adopt", str(unpacked(tmp_path)), "--dry-run", "-o", "json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert (found["groups"], found["transactions_open"], found["metadata.version"]) == ({"classic": 1}, 1, "3.7-IV4")
    assert found["properties"]["process.roles"] == "broker,controller" and found["changes"]


def test_a_refusal_names_each_reason_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = starts(monkeypatch)
    code = main(["adopt", str(tmp_path / "a"), str(tmp_path / "b")])
    err = capsys.readouterr().err
    assert code == FAILED and not started
    assert f"there is no directory {tmp_path}/a" in err and f"there is no directory {tmp_path}/b" in err
    assert err.endswith("  nothing was changed\n")


def test_the_node_runs_with_kafkas_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = starts(monkeypatch)
    file = tmp_path / "server.properties"
    directory = unpacked(tmp_path / "data")
    file.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={directory}\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\nlog.retention.hours=48\n"
    )
    assert main(["adopt", "--config", str(file)]) == OK
    ((properties),) = started
    assert (properties["log.retention.hours"], properties["ottla.advertised.release"]) == ("48", "4.3.1")
    assert main(["adopt"]) == USAGE and len(started) == 1


def test_a_file_that_is_none_of_properties_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\x80=1\n")
    assert main(["adopt", "--config", str(file), "--dry-run"]) == USAGE
    assert f"{file} is not a properties file" in capsys.readouterr().err
    assert main(["adopt", "--config", str(tmp_path / "nowhere"), "--dry-run"]) == USAGE
    assert "name Kafka's server.properties" in capsys.readouterr().err
