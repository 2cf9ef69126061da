"""A node rejects properties that it does not support, or names them in one line."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.server.config.broker import BROKER_CONFIGS, REJECTED, check_effects
from ottla.server.config.dynamic import check_broker_configs
from ottla.server.config.key import ConfigError, Type
from ottla.server.config.node_config import NodeConfig, log_ignored

ROOT = Path(__file__).parent.parent.parent.parent
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/a,/b",
}


def another(name: str) -> str:
    """Return a value that is not the property's default."""
    match BROKER_CONFIGS[name].type:
        case Type.BOOLEAN:
            return "true"
        case Type.INT | Type.LONG:
            return "12345"
        case Type.DOUBLE:
            return "12345.5"
        case _:
            return "com.acme.Ours"


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_what_would_weaken_a_protection_when_ignored_is_refused_at_any_value_but_the_default(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        NodeConfig({**NODE, name: another(name)}, {name: "/etc/kafka/server.properties"})
    assert f"{name}={another(name)} (set by /etc/kafka/server.properties) cannot be served" in str(refused.value)
    assert refused.value.what_to_try
    default = BROKER_CONFIGS[name].to_text(BROKER_CONFIGS[name].default)
    check_effects({name: default or ""}, {})


def test_it_is_refused_too_when_it_is_set_while_the_node_runs() -> None:
    with pytest.raises(ConfigError, match="cannot be served"):
        check_broker_configs({"config.providers": another("config.providers")}, per_broker=True)


def test_the_person_who_starts_the_node_reads_name_file_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = {**NODE, "log.dirs": str(tmp_path / "data"), "create.topic.policy.class.name": "com.acme.OnlyOurNames"}
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = [sys.executable, "-m", "ottla", "start", str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    said = ended.stderr
    assert ended.returncode == 1 and "Traceback" not in said
    assert f"create.topic.policy.class.name=com.acme.OnlyOurNames (set by {file}) cannot be served" in said
    assert "try: leave it out" in said


def test_everything_else_that_is_set_in_vain_is_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    in_vain = {
        "num.io.threads": "16",
        "remote.log.manager.thread.pool.size": "3",
        "metric.reporters": "com.acme.R",
        "listener.name.plaintext.ssl.provider": "SunJSSE",
    }
    with caplog.at_level(logging.WARNING):
        log_ignored(NodeConfig({**NODE, **in_vain, "num.partitions": "3"}))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.endswith("have no effect in Ottla: " + ", ".join(sorted(in_vain)))


def test_a_misspelt_name_is_ignored_with_the_name_that_was_meant(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_ignored(NodeConfig({**NODE, "log.retention.hour": "1", "acme.reporter": "x"}))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.endswith(": acme.reporter, log.retention.hour (did you mean log.retention.hours?)")


def test_a_bound_that_kafka_needs_and_ottla_does_not_is_no_reason_for_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        log_ignored(NodeConfig({**NODE, "group.consumer.min.heartbeat.interval.ms": "250"}))
    [line] = [record for record in caplog.records if "group.consumer.min.heartbeat" in record.getMessage()]
    assert (line.levelno, "not needed" in line.getMessage()) == (logging.INFO, True)


def test_a_cordoned_directory_has_to_be_one_of_the_nodes() -> None:
    config = NodeConfig({**NODE, "cordoned.log.dirs": "/b"})
    assert [config.is_cordoned(path) for path in ("/a", "/b")] == [False, True]
    assert NodeConfig({**NODE, "cordoned.log.dirs": "*"}).is_cordoned("/a")
    with pytest.raises(ConfigError, match=r"must be present in log.dirs.* Missing entries: /c"):
        NodeConfig({**NODE, "cordoned.log.dirs": "/c"})


def test_a_listeners_own_value_is_known_apart_from_the_nodes() -> None:
    config = NodeConfig({**NODE, "listener.name.plaintext.max.connections": "7", "max.connections": "9"})
    assert config.of_listener("PLAINTEXT") == {"max.connections": 7}
    assert config.of_listener("CONTROLLER") == {}
    changed = config.set_dynamic({"listener.name.plaintext.max.connections": "8"}, {})
    assert changed == {"listener.name.plaintext.max.connections"}
    assert config.of_listener("PLAINTEXT") == {"max.connections": 8}
