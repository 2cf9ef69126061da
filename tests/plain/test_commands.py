"""In a plain install the first commands and tests of the pages work, and a feature that needs an extra says so in a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ottla.server.extras import BROUGHT_BY
from tests.ottla.registry.stand_in import registry_of
from tests.ottla.test_distribution import THEIRS, project
from tests.plain.conftest import ROOT, Plain

__all__ = ["project"]

#: The packages of the extras without a command.
OTHERS = ("re2", "lz4", "gssapi", "pyspark", "pyarrow", "pandas", "confluent_kafka", "numpy")
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="k" principal="kafka/a@B";'
CLIENT = f"security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=kafka\nsasl.jaas.config={KERBEROS}\n"
NODE = f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:1
listeners=LOGIN://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
listener.security.protocol.map=LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=LOGIN
sasl.kerberos.service.name=kafka
listener.name.login.gssapi.sasl.jaas.config={KERBEROS}
log.dirs=kerberos
"""


def test_nothing_of_the_tree_is_imported_and_nothing_that_an_extra_brings_is_installed(plain: Plain) -> None:
    code = "import ottla, sys; from importlib.util import find_spec; print(ottla.__file__, *filter(find_spec, sys.argv[1:]))"
    names = sorted({name.partition(".")[0] for brought in BROUGHT_BY.values() for name in brought} | set(OTHERS))
    (file,) = plain.ok("python", "-c", code, *names).split()
    assert Path(file).is_relative_to(plain.environment)


def test_the_first_commands_of_a_user_work(plain: Plain, bootstrap: str) -> None:
    at = ("-b", bootstrap)
    plain.ok("ottla", "topic", "create", "greetings", *at)
    plain.ok("ottla", "produce", "greetings", *at, stdin="hello\nworld\n")
    assert plain.ok("ottla", "consume", "greetings", *at).splitlines() == ["hello", "world"]
    assert "greetings" in plain.ok("ottla", "topic", "list", *at)
    done = plain.run("ottla", "doctor", *at)
    assert done.returncode == 0 and "ok: a record was written" in done.stderr, done.stdout + done.stderr


def test_the_pages_tests_run_where_no_client_is_installed(plain: Plain, project: Path) -> None:
    """The other project has packages with the names of the tree's folders."""
    page = (ROOT / "docs/TESTING.md").read_text()
    (shown,) = re.findall(r"```python\n# (test_stock\.py)\n(.*?)```", page, re.S)
    (project / shown[0]).write_text(shown[1])
    done = plain.run("pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
    code = "import sys, ottla.node.node; print(*{name.partition('.')[0] for name in sys.modules})"
    assert not set(THEIRS) & set(plain.ok("python", "-c", code).split())


CALLS = """
def test_a_producer(kafka_proc):
    kafka_proc.producer()


def test_a_consumer_of_the_plugin(kafka_consumer):
    pass
"""


def test_a_fixture_that_needs_a_client_says_which(plain: Plain, tmp_path: Path) -> None:
    (tmp_path / "test_calls.py").write_text(CALLS)
    # Without a summary: if CI is set, the summary repeats the sentence.
    done = plain.run("pytest", "-q", "-rN", "-p", "no:cacheprovider", cwd=tmp_path)
    sentence = (
        "ottla.testing.errors.ClientMissing: the package confluent-kafka is not installed, whose producers and "
        f"consumers tests use: {plain.remedy}[testing]' installs it"
    )
    assert done.returncode == 1 and done.stdout.count(sentence) == 2, done.stdout


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("console", "ottla: the console needs the package starlette\n  INSTALL[console]'\n"),
        ("registry", "ottla: the registry needs the package starlette\n  INSTALL[registry]'\n"),
        ("dev --console", "ottla: --console needs the package starlette\n  INSTALL[console]'\n"),
        ("dev --faults", "ottla: --faults needs the package uvicorn\n  INSTALL[testing]'\n"),
        ("dev --registry", "ottla: --registry needs the package starlette\n  INSTALL[registry]'\n"),
    ],
)
def test_a_command_of_an_extra_says_how_to_install_it(plain: Plain, words: str, sentence: str) -> None:
    done = plain.run("ottla", *words.split())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence.replace("INSTALL", plain.remedy))


def test_the_pipeline_says_how_to_install_it(plain: Plain) -> None:
    done = plain.run("ottla-pipeline", "run", "all")
    assert done.returncode == 1
    sentence = r"ottla-pipeline: the Python package \w+ is missing; install it: (.+)\n"
    found = re.fullmatch(sentence, done.stderr)
    assert found is not None and found[1] == f"{plain.remedy}[pipeline]'"


def test_kerberos_is_refused_with_its_extra_at_a_client_and_at_a_node(plain: Plain, bootstrap: str) -> None:
    (plain.folder / "client.properties").write_text(CLIENT)
    (plain.folder / "server.properties").write_text(NODE)
    command = plain.run("ottla", "topic", "list", "-b", bootstrap, "--config", "client.properties")
    started = plain.run("ottla", "start", "server.properties")
    assert (command.returncode, started.returncode) == (2, 1)
    for done in (command, started):
        assert "GSSAPI, for which the optional library is missing" in done.stderr
        assert f"{plain.remedy}[gssapi]', or leave GSSAPI out\n" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_schemas_values_are_shown_as_their_bytes_with_the_extra_that_decodes_them(
    plain: Plain, bootstrap: str
) -> None:
    """JSON Schema needs no library."""
    rows = {
        "/schemas/ids/1": {"schema": '{"type": "string"}', "schemaType": "AVRO"},
        "/schemas/ids/2": {"schema": "{}", "schemaType": "JSON"},
    }
    encoded = [b"\0\0\0\0\1\6abc", b'\0\0\0\0\2{"a": 1}']
    lines = "".join(json.dumps({"value": value.decode()}) + "\n" for value in encoded)
    plain.ok("ottla", "topic", "create", "schemas", "-b", bootstrap)
    plain.ok("ottla", "produce", "schemas", "-b", bootstrap, "-i", "json", stdin=lines)
    with registry_of(rows) as (url, _):
        done = plain.run("ottla", "consume", "schemas", "-b", bootstrap, "--registry", url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == '{"a":1}'
    assert f"decoding AVRO needs `{plain.remedy}[registry]'`" in done.stderr
    assert "Traceback" not in done.stderr
