"""Client properties: as Java's clients take them, under librdkafka's names, and with a cluster that has TLS and SCRAM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("confluent_kafka", "fastavro", "javaproperties")

from ottla.pipeline import login
from ottla.pipeline.config import documented, files, load
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.source import client_options
from ottla.pipeline.topics import client_settings
from ottla.testing import Cluster
from tests.pipeline.conftest import ROOT

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PROPERTIES = rf"""bootstrap.servers=kafka:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={SCRAM} required username="alice" password="a\\"b\\\\c";
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES)
    return str(path)


def test_java_gets_the_properties_as_they_are_and_librdkafka_its_own_names(file: str) -> None:
    config = load(None, (), file)
    assert config.kafka.bootstrap_servers == "kafka:9093"
    java = client_options(config)
    assert java["kafka.bootstrap.servers"] == "kafka:9093"
    assert java["kafka.security.protocol"] == "SASL_SSL"
    assert java["kafka.sasl.jaas.config"] == f'{SCRAM} required username="alice" password="a\\"b\\\\c";'
    assert client_settings(config) == {
        "bootstrap.servers": "kafka:9093",
        "log_level": 2,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "/ca.pem",
    }


def test_the_settings_of_the_pipeline_win_over_the_file_of_client_properties(file: str, tmp_path: Path) -> None:
    toml = tmp_path / "pipeline.toml"
    toml.write_text(
        '[kafka]\nbootstrap_servers = "other:1"\n[kafka.options]\n"ssl.truststore.location" = "/mine.pem"\n'
    )
    config = load(str(toml), ("kafka.options.client.id=p",), file)
    assert config.kafka.bootstrap_servers == "other:1"
    settings = client_settings(config)
    assert (settings["ssl.ca.location"], settings["sasl.username"], settings["client.id"]) == (
        "/mine.pem",
        "alice",
        "p",
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem", "ssl.key.password": "x"},
            {"ssl.key.location": "/k.pem", "ssl.certificate.location": "/k.pem", "ssl.key.password": "x"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "CHAIN"},
            {"ssl.key.pem": "KEY", "ssl.certificate.pem": "CHAIN"},
        ),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "CA"}, {"ssl.ca.pem": "CA"}),
        ({"ssl.truststore.location": "/t.jks", "ssl.ca.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.PlainLoginModule required username=bob password=p;"},
            {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": "p"},
        ),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "x required;"}, {"sasl.mechanism": "OAUTHBEARER"}),
        ({"max.poll.records": "5"}, {}),
    ],
)
def test_stores_and_logins_have_librdkafkas_names(options: dict[str, str], expected: dict[str, str]) -> None:
    assert login.for_librdkafka(options) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "cannot read the trust store /t.jks; write it as PEM"),
        ({"ssl.keystore.location": "/k.jks"}, "cannot read the key store /k.jks; convert it"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x required username=u;"}, "has no password"),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": "x required username=u password=p tokenauth=true;"},
            "cannot log in with a delegation token",
        ),
    ],
)
def test_what_librdkafka_cannot_do_is_said_before_spark_starts(options: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        login.for_librdkafka(options)


def test_files_of_both_kinds_are_recognized_and_the_variable_is_the_last_resort() -> None:
    environment = {"OTTLA_CONFIG": "from-variable"}
    assert files(None, {}) == (None, None)
    assert files(["a.toml"], environment) == ("a.toml", "from-variable")
    assert files(["c.properties", "settings"], environment) == ("settings", "c.properties")
    with pytest.raises(PipelineError, match="one of each kind"):
        files(["a.toml", "b.toml"], {})


def test_passwords_are_not_printed(file: str) -> None:
    lines = "\n".join(documented(load(None, ("kafka.options.ssl.key.password=hunter2",), file)))
    assert "alice" not in lines and "hunter2" not in lines
    assert '"sasl.jaas.config" = "[hidden]"' in lines


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, secure=True) as running:
        yield running


def test_the_generator_logs_in_with_the_file_that_the_variable_names(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.pipeline", "generate", "--bootstrap", cluster.bootstrap]
    command += ["--seconds", "0.5", "--output", str(tmp_path), "--set", "kafka.replication_factor=1"]
    environment = {"PYTHONPATH": str(ROOT), "OTTLA_CONFIG": cluster.client_file}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["unacknowledged"] == 0
