"""Commands and scripts of bitnami's users: their output, the time when they run, and the message if they fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.container.resolve import resolve
from ottla.container.settings import ContainerError
from ottla.container.steps import DONE, SCRIPTS, run_scripts, with_commands_run

PATH = {"PATH": os.environ["PATH"]}


def test_a_node_id_is_what_its_command_prints_whatever_else_was_given() -> None:
    given = PATH | {
        "HOSTNAME": "kafka-2",
        "KAFKA_NODE_ID": "7",
        "KAFKA_CFG_NODE_ID": "8",
        "KAFKA_NODE_ID_COMMAND": "echo ${HOSTNAME##*-}",
        "KAFKA_CONTROLLER_QUORUM_VOTERS_COMMAND": "echo 2@kafka-2:9093",
    }
    properties = resolve(with_commands_run(given), lambda _: None).properties
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"] == "2@kafka-2:9093"


@pytest.mark.parametrize(
    ("command", "said"), [("exit 3", "ended with 3"), ("true", "prints nothing"), ("nonsense-command", "127")]
)
def test_a_command_that_gives_nothing_is_refused_with_its_variable(command: str, said: str) -> None:
    with pytest.raises(ContainerError, match=said) as refused:
        with_commands_run(PATH | {"KAFKA_NODE_ID_COMMAND": command})
    assert str(refused.value).startswith("KAFKA_NODE_ID_COMMAND: ") and "\n" not in str(refused.value)


def script(root: Path, name: str, text: str, *, executable: bool) -> None:
    path = root / SCRIPTS.lstrip("/") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)


def test_scripts_run_in_order_before_the_volumes_first_start_and_not_again(tmp_path: Path) -> None:
    script(tmp_path, "20.sh", f"echo second $WHO >> {tmp_path}/ran\n", executable=False)
    script(tmp_path, "10.sh", f"#!/bin/sh\necho first $WHO >> {tmp_path}/ran\n", executable=True)
    script(tmp_path, "30.sql", "select 1", executable=True)
    said: list[str] = []
    for _ in range(2):
        run_scripts(str(tmp_path), PATH | {"WHO": "me"}, said.append)
    assert (tmp_path / "ran").read_text().splitlines() == ["first me", "second me"]
    assert sum("30.sql is not run" in line for line in said) == 1


def test_a_script_that_fails_ends_the_start_and_runs_again_next_time(tmp_path: Path) -> None:
    script(tmp_path, "10.sh", "#!/bin/sh\nexit 4\n", executable=True)
    with pytest.raises(ContainerError, match=f"{SCRIPTS}/10.sh.* ended with 4"):
        run_scripts(str(tmp_path), PATH, lambda line: None)
    assert not os.path.exists(str(tmp_path) + DONE)


def test_nothing_mounted_is_nothing_done(tmp_path: Path) -> None:
    run_scripts(str(tmp_path), PATH, lambda line: None)
    assert list(tmp_path.iterdir()) == []
