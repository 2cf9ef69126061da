"""Names, numbers and partitions that a cluster does not have: each command reports them in one sentence, with an exit code that
is not 0.
"""

from __future__ import annotations

import pytest

from ottla.cli.errors import FAILED, OK, USAGE
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli


def assert_refused(cli: Cli, here: Run, words: str, code: int, said: str) -> None:
    topic = cli.topic() if "{topic}" in words else ""
    done = here(*words.format(topic=topic).split())
    assert done.code == code, done.err
    assert said.format(topic=topic) in done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("cluster may-stop 77", USAGE, "there is no node 77"),
        ("topic list none-such", FAILED, "there is no topic 'none-such'"),
        ("partition list {topic}:9", USAGE, "there is no partition {topic}-9"),
        ("partition list --led-by 77", USAGE, "there is no broker 77"),
        ("partition list --on 77", USAGE, "there is no broker 77"),
        ("partition elect {topic}:9", USAGE, "there is no partition {topic}-9"),
        ("partition elect {topic}:9 --dry-run", USAGE, "there is no partition {topic}-9"),
        ("move plan {topic}:9 --even", USAGE, "there is no partition {topic}-9"),
        ("move plan --drain 77", USAGE, "there is no broker 77"),
        ("move cancel {topic}:9", USAGE, "there is no partition {topic}-9"),
        ("broker remove 77", USAGE, "there is no broker 77"),
        ("group reset none-such --topic {topic}:9 --to 0", USAGE, "there is no partition {topic}-9"),
    ],
)
def test_what_the_cluster_does_not_have_is_a_failure(cli: Cli, here: Run, words: str, code: int, said: str) -> None:
    assert_refused(cli, here, words, code, said)


@pytest.mark.ours
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("group describe none-such --story", FAILED, "group none-such: no such group"),
        ("txn describe none-such --story", FAILED, "transactional id none-such: no such transactional id"),
        ("topic describe none-such --story --partition 0", FAILED, "topic none-such: "),
        ("topic describe {topic} --story --partition 9", USAGE, "there is no partition {topic}-9"),
    ],
)
def test_what_has_no_story_is_a_failure(cli: Cli, here: Run, words: str, code: int, said: str) -> None:
    assert_refused(cli, here, f"{words} --admin-port={cli.admin_port}", code, said)


def test_a_pattern_that_matches_no_topic_is_said_and_is_no_failure(cli: Cli, here: Run) -> None:
    topic = cli.topic()
    done = here("topic", "list", topic, "none-such-*")
    assert (done.code, done.err) == (OK, "no topic matches 'none-such-*'\n") and topic in done.out
