"""The option `--story` of group, topic and txn describe, against a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ottla.cli.errors import USAGE
from tests.ottla.cli.commands.test_group import member
from tests.ottla.conftest import Cli


@pytest.fixture
def admin(cli: Cli) -> str:
    return f"--admin-port={cli.admin_port}"


@contextmanager
def listener(status: int, body: bytes) -> Iterator[str]:
    """Serve one response to all requests. Yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"1@127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.ours
def test_the_story_of_a_group_has_its_member_and_of_a_partition_its_leader(cli: Cli, admin: str) -> None:
    topic = cli.topic(partitions=2)
    group = f"group-of-{topic}"
    cli.ok("produce", topic, stdin="a\n")
    with member(cli, group, topic, take=1):
        rows = cli.rows("group", "describe", group, "--story", admin)
    assert ("SyncGroup", "stock-client /127.0.0.1") in [(row["cause"], row["client"]) for row in rows]
    assert any("Offsets were committed" in str(row["decision"]) for row in rows)
    (led,) = cli.rows("topic", "describe", topic, "--story", "--partition", "1", admin)
    assert str(led["decision"]).startswith(f"Leader {topic}-1 starts at leader epoch 0") and led["cause"] == "metadata"
    assert "DECISION" in cli.ok("group", "describe", group, "--story", admin)


def test_a_topic_has_no_story_and_its_partitions_have_one(cli: Cli, admin: str) -> None:
    topic = cli.topic(partitions=2)
    done = cli("topic", "describe", topic, "--story", admin)
    assert done.code == USAGE and "add --partition N" in done.err
    assert [row["partition"] for row in cli.rows("topic", "describe", topic, "--partition", "1")] == [1]
    done = cli("topic", "describe", topic, "--partition", "2")
    assert done.code == USAGE and f"topic {topic} has no partition 2" in done.err


def test_what_no_node_remembers_is_said_so(cli: Cli) -> None:
    with listener(200, b"") as address:
        done = cli("topic", "describe", cli.topic(), "--story", "--partition", "0", "--admin", address)
    assert (done.code, done.err.count("no node that answers remembers")) == (0, 1)


def test_without_an_admin_listener_one_sentence_says_how_to_get_one(cli: Cli) -> None:
    done = cli("group", "describe", "g", "--story")
    assert done.code == USAGE and "ottla.admin.listener" in done.err and "--admin-port" in done.err


@pytest.mark.ours
def test_the_listeners_of_a_local_cluster_need_not_be_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", cli.state)
    topic = cli.topic()
    (led,) = cli.rows("topic", "describe", topic, "--story", "--partition", "0")
    assert str(led["decision"]).startswith(f"Leader {topic}-0 starts")
    assert cli.ok("client", "list").startswith("BROKER")
    with listener(403, b"the one that is named") as address:
        assert "the one that is named" in cli("group", "describe", "g", "--story", "--admin", address).err


def test_a_listener_that_refuses_says_why(cli: Cli) -> None:
    with listener(403, b"stories are switched off: ottla.admin.story=local\nmore") as address:
        done = cli("group", "describe", "g", "--story", "--admin", address)
    assert done.code == USAGE and "answers 403: stories are switched off: ottla.admin.story=local" in done.err
    assert "more" not in done.err


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"node": 1}', b"1\n2", b'{"node": "x", "time_ms": 1, "first_ms": 1, "times": 1}']
)
def test_what_is_no_story_is_not_shown_as_one(cli: Cli, body: bytes) -> None:
    with listener(200, body) as address:
        done = cli("group", "describe", "g", "--story", "--admin", address)
    assert done.code == USAGE and "answers with no story" in done.err


def test_characters_that_steer_a_terminal_are_shown_escaped(cli: Cli) -> None:
    line = (
        b'{"node": 1, "time_ms": 1700000000000, "first_ms": 1, "times": 3, "cause": "JoinGroup", "client_id": "\\u001b[2J",'
        b' "host": "/h", "text": "Member \\u202e\\u009b joins\\nnext"}\n'
    )
    with listener(200, line) as address:
        out = cli.ok("group", "describe", "g", "--story", "--admin", address)
    assert "\\x1b[2J" in out and "\\u202e" in out and "\\x9b" in out and "(3 times)" in out
    assert not {"\x1b", "\u202e", "\x9b"} & set(out) and len(out.splitlines()) == 2
