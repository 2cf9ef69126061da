"""Kafka Streams 4.3.1 with `group.protocol=streams`: words are counted exactly once though an application is killed, and the tools see the group.

Skipped with the reason where Java is missing. The long form, with brokers that are killed too, is `tests/chaos/word_counts.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing.cluster import Cluster
from tests.chaos.word_counts import CHECK_SECONDS_MAX, QUICK, WordCounts
from tests.needs import needs_apache_kafka
from tools.apache_kafka import ToolSession


@pytest.mark.compat
@needs_apache_kafka
@pytest.mark.timeout(600)
def test_words_are_counted_once_though_an_application_is_killed(tmp_path: Path) -> None:
    with Cluster(1, **QUICK) as cluster, ToolSession() as session:
        counts = WordCounts(cluster.bootstrap, "words", tmp_path)

        def tool(name: str, *args: str) -> str:
            done = session.run(name, "--bootstrap-server", cluster.bootstrap, *args)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        try:
            counts.start()
            counts.send(500)
            counts.wait_until_running(0)
            counts.start()
            counts.wait_until_running(1)
            counts.applications[0].kill()
            counts.send(500)
            counts.flush()
            counts.check(CHECK_SECONDS_MAX)
            assert tool("kafka-streams-groups", "--list").split() == ["words"]
            described = tool("kafka-streams-groups", "--describe", "--group", "words")
            assert described.count("-repartition") == described.count("words-in") == 4
            members = tool("kafka-streams-groups", "--describe", "--group", "words", "--members", "--verbose")
            assert members.count("StreamThread-") == 2 and members.count("TARGET-ACTIVE: ") == 2
            assert "Stable" in tool("kafka-streams-groups", "--describe", "--group", "words", "--state")
        finally:
            counts.stop()
        tool("kafka-streams-groups", "--delete", "--group", "words")
        assert not tool("kafka-streams-groups", "--list").split()
