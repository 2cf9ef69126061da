"""The control port of `ottla dev --faults`: a stock client meets the faults that were requested over HTTP, and hostile requests
have no effect.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.local.nodes import HOST
from ottla.testing import Cluster, control_port, verbs
from ottla.testing.control_port import BODY_BYTES_MAX, RUNNING_MAX, ControlPort, http_server
from ottla.testing.verbs import INTEGER_MAX, ITEMS_MAX, LOG_BYTES_MAX, STRIKES_KEPT_MAX, WAIT_SECONDS_MAX, RemoteCluster
from tests.broker.conftest import eventually
from tests.ottla.conftest import ROOT
from tests.ottla.web.servers import in_thread
from tests.ports import free_base_port

pytestmark = pytest.mark.timeout(180)
TOKEN = "not-to-be-guessed"


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, cuttable=True) as running:
        yield running


@pytest.fixture(scope="module")
def port(cluster: Cluster) -> Iterator[int]:
    with in_thread(http_server(ControlPort(cluster))) as port:
        yield port


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.restore()


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, json.loads(response.read()))
    finally:
        connection.close()


def run(port: int, verb: str, **fields: object) -> Answer:
    return ask(port, "POST", f"/{verb}", json.dumps(fields).encode(), Content_Type="application/json")


def error_of_a_record(bootstrap: str, **settings: object) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    producer.produce("orders", b"3 apples", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(60) == 0
    return errors[0]


def test_a_stock_client_gets_the_error_that_was_asked_for_over_http(port: int, cluster: Cluster) -> None:
    assert run(port, "topic", name="orders", configs={"retention.ms": "1000000"}) == (200, {"topic": "orders"})
    asked = run(port, "fail_next", api="Produce", error="TOPIC_AUTHORIZATION_FAILED")
    assert run(port, "strikes_left", **asked.body) == (200, {"left": 1})
    error = error_of_a_record(cluster.bootstrap)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert run(port, "strikes_left", **asked.body) == (200, {"left": 0})
    assert error_of_a_record(cluster.bootstrap) is None


def test_nodes_links_clocks_and_disks_obey_and_restore_ends_it_all(port: int, cluster: Cluster) -> None:
    before = cluster.condition()
    assert run(port, "kill", node_id=1) == (200, {})
    (node,) = run(port, "status").body["status"]["nodes"]
    assert node == {"id": 1, "address": cluster.bootstrap, "running": False, "paused": False}
    assert run(port, "start", node_ids=[1]).body["seconds"] > 0
    for verb, fields in {
        "latency": {"ms": 1, "node_ids": [1]},
        "partition": {"one": 1, "other": 0, "one_way": True},
        "advance": {"days": 2},
        "slow_disk": {"ms": 1},
        "versions": {"api": "Produce", "highest": 7},
        "pause": {"node_id": 1},
    }.items():
        assert run(port, verb, **fields) == (200, {}), verb
    after = cluster.condition()
    assert (after.advanced_ms, after.faults[1].slow_disk_ms, after.paused) == (2 * 86_400_000, 1, {1})
    assert len(after.ways) == 2 and after.faults[1].versions == ((0, 0, 7),)
    assert run(port, "restore") == (200, {})
    assert cluster.condition() == before


def test_the_list_has_all_verbs_with_a_sentence_and_the_types_of_their_fields(port: int) -> None:
    rows = {row["verb"]: row for row in ask(port, "GET", "/").body["verbs"]}
    assert rows.keys() == verbs.RESULTS.keys() and all(row["does"].endswith(".") for row in rows.values())
    assert rows["partition"]["fields"] == {
        "one": {"type": "integer", "required": True},
        "other": {"type": "integer", "required": True},
        "one_way": {"type": "boolean", "default": False},
    }
    public = {name for name in dir(Cluster) if not name.startswith("_") and callable(getattr(Cluster, name))}
    python_alone = {"address", "close", "condition", "consumer", "faults_of", "is_paused", "is_running", "metadata"}
    python_alone |= {"node", "pid", "producer", "records", "replay", "snapshot", "write"}
    assert public - python_alone == rows.keys() - {"status", "strikes_left"}


#: A verb, its body, and the response's status, its error, and a part of its message.
WRONG = {
    "a verb that is none": ("kil", b"{}", 404, "UnknownVerb", "did you mean 'kill'?"),
    "Python's own": ("__init__", b"{}", 404, "UnknownVerb", "GET / lists all verbs"),
    "no path out of the list": ("../../etc/passwd", b"{}", 404, "UnknownVerb", "GET /"),
    "a node that is none": ("kill", b'{"node_id": 7}', 400, "NoSuchNode", "the nodes of this cluster are 1"),
    "no field": ("skew_clock", b'{"seconds": 1}', 400, "InvalidArguments", "needs the field 'node_id'"),
    "another field": ("kill", b'{"nodeid": 1}', 400, "InvalidArguments", "did you mean 'node_id'?"),
    "a file of this machine": (
        "topic",
        b'{"name": "x", "seed": "/etc/passwd"}',
        400,
        "InvalidArguments",
        "no field 'seed'",
    ),
    "a folder of this machine": ("strikes_left", b'{"strikes": "../.."}', 400, "InvalidFault", "has not returned"),
    "another type": ("kill", b'{"node_id": true}', 400, "InvalidArguments", "no integer"),
    "a list of others": ("start", b'{"node_ids": [1, "2"]}', 400, "InvalidArguments", "no list of integers"),
    "too long a list": (
        "start",
        json.dumps({"node_ids": [1] * (ITEMS_MAX + 1)}).encode(),
        400,
        "InvalidArguments",
        "list",
    ),
    "too large a number": ("kill", b'{"node_id": %d}' % (INTEGER_MAX + 1), 400, "InvalidArguments", "no integer"),
    "a number of thousands of digits": (
        "kill",
        b'{"node_id": 1%s}' % (b"0" * 5_000),
        400,
        "InvalidArguments",
        "no JSON",
    ),
    "not a number": ("delay", b'{"api": "Fetch", "seconds": NaN}', 400, "InvalidArguments", "no number"),
    "an endless number": ("advance", b'{"days": 1e999}', 400, "InvalidArguments", "no number"),
    "a number that is out of range": ("advance", b'{"days": 1e9}', 400, "InvalidFault", "out of range"),
    "more requests than files": (
        "fail_next",
        b'{"api": 0, "error": 1, "n": 1000000000}',
        400,
        "InvalidFault",
        "out of range",
    ),
    "a longer wait": (
        "wait_isr",
        b'{"topic": "x", "seconds": %d}' % (WAIT_SECONDS_MAX + 1),
        400,
        "InvalidFault",
        "out of range",
    ),
    "no JSON": ("kill", b"node_id=1", 400, "InvalidArguments", "no JSON"),
    "no object": ("kill", b"[1]", 400, "InvalidArguments", "not an object"),
    "a deep list": ("kill", b"[" * 50_000, 400, "InvalidArguments", "nested too deeply"),
    "no text": ("kill", b"\xff\xfe\x00", 400, "InvalidArguments", "no JSON"),
    "too long a body": ("kill", b" " * (BODY_BYTES_MAX + 1), 413, "TooLong", "more than"),
    "a user of a cluster without logins": ("add_user", b'{"name": "eve"}', 400, "MadeOtherwise", "ottla dev --secure"),
    "a topic that cannot be": ("topic", b'{"name": "a/b"}', 400, "Refused", "topic a/b"),
    "too many replicas": ("topic", b'{"name": "three", "replicas": 3}', 400, "TooFewNodes", "3 replicas"),
    "no replica in time": ("wait_isr", b'{"topic": "none", "seconds": 0}', 504, "TimedOut", "none"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_an_error_of_its_kind_and_does_nothing(port: int, cluster: Cluster, case: str) -> None:
    before = cluster.condition()
    verb, body, status, error, said = WRONG[case]
    answer = ask(port, "POST", f"/{verb}", body, Content_Type="application/json")
    assert (answer.status, answer.body["error"]) == (status, error), answer
    assert said in f"{answer.body['message']}: {answer.body.get('remedy', '')}"
    assert cluster.condition() == before


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {"Origin": "http://evil.example"}),
        (403, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}),
        (400, {"Host": "evil.example"}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Type": "application/x-www-form-urlencoded"}),
    ],
)
def test_a_page_of_a_browser_breaks_nothing(port: int, cluster: Cluster, status: int, headers: dict[str, str]) -> None:
    answer = ask(port, "POST", "/kill", b'{"node_id": 1}', **{"Content_Type": "application/json", **headers})
    assert answer.status == status and answer.body["error"] == "Refused"
    assert cluster.is_running(1)


def test_a_verb_runs_by_post_alone(port: int, cluster: Cluster) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert ask(port, method, "/restore").status == 405
    assert ask(port, "POST", "/").status == 404


def test_a_cluster_with_logins_obeys_who_has_its_token(cluster: Cluster) -> None:
    with in_thread(http_server(ControlPort(cluster, TOKEN))) as port:
        for given in (
            {},
            {"Authorization": "Bearer other"},
            {"Authorization": TOKEN},
            {"Authorization": "Bearer \xff"},
        ):
            assert ask(port, "GET", "/", **given).status == 401
            assert ask(port, "POST", "/kill", b'{"node_id": 1}', **given).status == 401
        assert ask(port, "POST", "/status", Authorization=f"Bearer {TOKEN}").status == 200


def test_requests_that_wait_are_bounded_and_hold_up_no_other_verb(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_port, "RUNNING_MAX", 2)
    asking = [
        threading.Thread(target=run, args=(port, "wait_isr"), kwargs={"topic": "never", "seconds": 2}) for _ in range(1)
    ]
    for each in asking:
        each.start()
    eventually(lambda: run(port, "heal").status == 200, "a verb beside one that waits", seconds=30)
    monkeypatch.setattr(control_port, "RUNNING_MAX", 1)
    eventually(lambda: run(port, "status").status == 503, "the bound", seconds=2)
    for each in asking:
        each.join()
    assert RUNNING_MAX > 2
    eventually(lambda: run(port, "status").status == 200, "the end of those that waited", seconds=30)


def test_logs_and_counts_that_are_kept_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "STRIKES_KEPT_MAX", 2)
    monkeypatch.setattr(verbs, "LOG_BYTES_MAX", 10)
    assert min(STRIKES_KEPT_MAX, LOG_BYTES_MAX) > 10
    remote = RemoteCluster(cluster)
    first, *others = [remote.fail_next("Produce", "NONE") for _ in range(3)]
    assert [remote.strikes_left(each) for each in others] == [1, 1]
    with pytest.raises(verbs.InvalidFault):
        remote.strikes_left(first)
    assert len(remote.log(1)) == 10


def test_dev_serves_faults_at_its_ports_to_who_has_the_token_and_ends_in_order(tmp_path: Path) -> None:
    base = free_base_port()
    words = [
        "dev",
        "--nodes",
        "1",
        "--base-port",
        str(base),
        "--dir",
        str(tmp_path),
        "--secure",
        "--json",
        "--faults",
        "0",
    ]
    command = [sys.executable, "-P", "-m", "ottla", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as dev:
        assert dev.stdout is not None and dev.stderr is not None
        try:
            up = json.loads(dev.stdout.readline())
            assert up["bootstrap"] == f"{HOST}:{base}"
            port = int(up["faults"].rpartition(":")[2])
            bearer = {"Authorization": f"Bearer {Path(up['faults_token']).read_text().strip()}"}
            assert ask(port, "POST", "/kill", b'{"node_id": 1}').status == 401
            user = ask(port, "POST", "/add_user", b'{"name": "alice", "allowed": ["write topic:orders"]}', **bearer)
            assert user.body["settings"]["bootstrap.servers"] == up["bootstrap"], user
            assert ask(port, "POST", "/topic", b'{"name": "orders"}', **bearer).status == 200
            assert ask(port, "POST", "/kill", b'{"node_id": 1}', **bearer).status == 200
            assert ask(port, "POST", "/restore", **bearer).status == 200
            settings = user.body["settings"]
            assert error_of_a_record(settings.pop("bootstrap.servers"), **settings) is None
        finally:
            dev.send_signal(signal.SIGTERM)
            said = dev.stderr.read()
        assert dev.wait(60) == 0 and "stopping" in said, said
