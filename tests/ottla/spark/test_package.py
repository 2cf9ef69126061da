"""The modules of the connector: no module of the broker is among them, and a wheel of them works without the rest."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.pipeline.connector_modules import needed_files
from tools import connector_dist
from tools.platforms import project

#: What the connector may contain: the protocol, the server's modules for a client's TLS and login, the parts of the client
#: library without an event loop, the registry's client, and the storage's reader of log files.
ALLOWED = (
    "ottla.protocol",
    "ottla.columns",
    "ottla.spark",
    "ottla.columns",
    "ottla.client.blocking",
    "ottla.client.errors",
    "ottla.client.failures",
    "ottla.client.idempotence",
    "ottla.client.partitions",
    "ottla.server.sasl",
    "ottla.server.tls",
    "ottla.server.config",
    "ottla.server.network",
    "ottla.registry.client",
    "ottla.registry.formats.avro_text",
    "ottla.registry.formats.java_json",
    "ottla.storage.checkpoint",
    "ottla.storage.log_files",
)
#: Further modules that these import, each a leaf of its package.
LEAVES_MAX = 17
DATE = (2020, 2, 2, 0, 0, 0)


def test_no_broker_is_among_its_modules() -> None:
    others = [name for name in needed_files() if name.count(".") > 1 and not name.startswith(ALLOWED)]
    assert not [
        name for name in others if name.startswith(("ottla.broker", "ottla.controller", "ottla.node", "ottla.cli"))
    ]
    assert len(others) <= LEAVES_MAX, others


def test_its_wheel_and_ottla_have_the_same_lowest_versions() -> None:
    found = [Requirement(text) for texts in project().values() for text in texts]
    lowest = {canonicalize_name(requirement.name): requirement.specifier for requirement in found}
    ours = {"cramjam", "zstandard", "fastcrc", "cryptography", "fastavro", "lz4", "numpy"}
    required = {requirement.name: requirement.specifier for requirement in map(Requirement, connector_dist.REQUIRES)}
    assert {name: required[name] for name in ours} == {name: lowest[name] for name in ours}


def test_what_its_modules_import_is_what_the_wheel_requires() -> None:
    found = set()
    for file in needed_files().values():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    required = {re.split(r"\W", each)[0] for each in connector_dist.REQUIRES}
    found -= {*sys.stdlib_module_names, "re2"}  # the latter only if it is installed
    assert found == required | {"ottla", "pyspark"}


@pytest.mark.compat
def test_the_wheel_works_without_the_rest_of_the_tree(tmp_path: Path) -> None:
    wheel = connector_dist.write_wheel(tmp_path, "1.0", DATE)
    assert wheel.read_bytes() == connector_dist.write_wheel(tmp_path, "1.0", DATE).read_bytes()
    program = (
        "import sys, importlib.abc\n"
        "class NoOttla(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.partition('.')[0] == 'ottla': raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoOttla())\n"
        f"sys.path.insert(0, {str(wheel)!r})\n"
        "from pyspark_ottla import DefaultSource\n"
        "import pyspark_ottla.server.tls.contexts\n"
        "source = DefaultSource({'subscribe': 't', 'kafka.bootstrap.servers': '127.0.0.1:1'})\n"
        "print(source.name(), source.schema())\n"
        "try: source.reader(None).partitions()\n"
        "except Exception as fault: print(fault)\n"
        "class Spark:\n"
        "    listFiles, environment, pythonExec = [], {}, sys.executable\n"
        "    def addPyFile(self, path): self.listFiles.append(path); print('sent', path)\n"
        "    def register(self, source): print('registered', source.name())\n"
        "    sparkContext = dataSource = property(lambda self: self)\n"
        "from pyspark_ottla import register\n"
        "for _ in range(2): register(Spark())\n"
        "print(Spark.environment['PYTHONPATH'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ottla key BINARY, value BINARY") and "127.0.0.1:1 cannot be reached" in done.stdout
    lines = done.stdout.splitlines()[-4:]
    assert lines[0].startswith("sent /") and lines[0].endswith("/pyspark_ottla-1.0-py3-none-any.zip"), (
        "Spark takes no .whl"
    )
    assert lines[1:] == ["registered ottla", "registered ottla", str(wheel)]


def test_names_of_modules_are_replaced_and_nothing_else() -> None:
    assert connector_dist.renamed('from ottla.protocol.api import f"ottla.protocol.messages.{x}"') == (
        'from pyspark_ottla.protocol.api import f"pyspark_ottla.protocol.messages.{x}"'
    )
    assert connector_dist.renamed('format("ottla"), ottla.sh') == 'format("ottla"), ottla.sh'


@pytest.mark.parametrize("requirement", connector_dist.REQUIRES)
def test_it_requires_no_more_than_the_broker_does(requirement: str) -> None:
    text = (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text()
    name = requirement.partition(";")[0].strip()
    assert f'"{name}' in text or name.startswith("pyarrow")
