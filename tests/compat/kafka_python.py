"""kafka-python's own integration tests (3.0.12), from its source distribution."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.compat.librdkafka import Outcome
from tests.unpacking import unpack
from tools.apache_kafka.jars import CACHE

VERSION = "3.0.12"
HOME = CACHE / f"kafka-python-{VERSION}"
SOURCE = HOME / f"kafka_python-{VERSION}"
SUITE_SECONDS_MAX = 900
#: The version of the broker, for the suite and its clients.
KAFKA_VERSION = "4.3.0"
# A module of the tests that the sdist lacks. It is only needed to start servers.
SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port
    def open(self): pass
    def close(self): pass
    def stop(self): pass
    def dump_logs(self): pass
    def wait_for(self, pattern, timeout=None): return True

class SpawnedService:
    def __init__(self, *args, **kw):
        raise RuntimeError("no servers are started here")
"""
#: The SSL and SASL modules start brokers of their own: by this they find the listeners of a running broker instead.
SECURED = """
import os
from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture

PORTS = dict(pair.split("=") for pair in os.environ["SECURED_PORTS"].split(","))

def instance(broker_id, transport="PLAINTEXT", sasl_mechanism=None, **_):
    port = int(PORTS[transport])
    broker = KafkaFixture("localhost", port, broker_id, transport=transport, sasl_mechanism=sasl_mechanism, external=True)
    broker.open()
    broker.child, broker.running, broker.ssl_dir = Child(), True, os.environ["SECURED_FILES"]
    return broker

class Child:
    def dump_logs(self): pass

def topics(broker):
    admin = KafkaAdminClient(**broker._enrich_client_params({}))
    try:
        return admin.list_topics()
    finally:
        admin.close()

KafkaFixture.instance = staticmethod(instance)
KafkaFixture.get_topic_names = topics
"""


def build() -> None:
    """Fetch the source distribution and install it with its test requirements, once."""
    if (HOME / "built").exists():
        return
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], check=True)
    pip = [str(HOME / "venv/bin/python"), "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "download", "--no-deps", "--no-binary", "kafka-python", f"kafka-python=={VERSION}"], cwd=HOME, check=True
    )
    archive = HOME / f"kafka_python-{VERSION}.tar.gz"
    with tarfile.open(archive) as tar:
        unpack(tar, HOME)
    (SOURCE / "test/__init__.py").touch()
    (SOURCE / "test/service.py").write_text(SERVICE)
    needs = ["pytest", "pytest-mock", "pytest-timeout", "py", "lz4", "python-snappy", "zstandard", "crc32c"]
    subprocess.run([*pip, "install", str(archive), *needs], cwd=HOME, check=True)
    (HOME / "built").touch()


def run(bootstrap: str, logs: Path, select: str = "", version: str = KAFKA_VERSION) -> list[Outcome]:
    """Run the suite once, at the first address, because it takes only one. `version` is the release that is there.

    The SSL and SASL modules are left out: `run_secured` runs them.
    """
    words = [
        "test/integration",
        *(f"--ignore=test/integration/test_{name}_integration.py" for name in ("ssl", "sasl")),
        *(["-k", select] if select else []),
    ]
    given = {"KAFKA_URI": f"kafka://{bootstrap.partition(',')[0]}", "KAFKA_VERSION": version}
    return _pytest(words, logs, "kafka-python", given)


def run_secured(ports: dict[str, int], ca: str, logs: Path) -> list[Outcome]:
    """Run the SSL and SASL modules at the listeners of a node 0; `ports` by security protocol."""
    (logs / "secured_brokers.py").write_text(SECURED)
    shutil.copy(ca, logs / "ca-cert")
    given = {
        "PYTHONPATH": str(logs),
        "SECURED_PORTS": ",".join(f"{protocol}={port}" for protocol, port in ports.items()),
        "SECURED_FILES": str(logs),
    }
    words = [f"test/integration/test_{name}_integration.py" for name in ("ssl", "sasl")]
    return _pytest([*words, "-p", "secured_brokers"], logs, "kafka-python-secured", given)


def _pytest(words: list[str], logs: Path, name: str, given: dict[str, str]) -> list[Outcome]:
    report = logs / f"{name}.xml"
    command = [
        str(HOME / "venv/bin/python"), "-m", "pytest", "-q", "-o", "addopts=", "--timeout=120", "-p", "no:cacheprovider",
        f"--junitxml={report}", *words,
    ]  # fmt: skip
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    env |= {"KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(SOURCE), **given}
    with (logs / f"{name}.log").open("wb") as output:
        subprocess.run(command, cwd=SOURCE, env=env, stdout=output, stderr=output, timeout=SUITE_SECONDS_MAX)
    outcomes = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        result = "FAIL" if bad is not None else "SKIP" if case.find("skipped") is not None else "PASS"
        reason = (bad.get("message") or "").splitlines()[0][:200] if bad is not None and bad.get("message") else ""
        module = (case.get("classname") or "").rpartition(".")[2]
        name = f"{module}::{case.get('name')}".replace(" ", "_")
        outcomes.append(Outcome(name, result, float(case.get("time") or 0), reason))
    return outcomes
