"""`ottla mirror` at one node: aliases, contexts, and questions about a mirror that has never run."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from ottla.cli.errors import FAILED, OK, USAGE
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli, Finished

NUMBERS = count()


@pytest.fixture
def aliases() -> tuple[str, str]:
    """Return names that no other test has used at the node."""
    number = next(NUMBERS)
    return f"one{number}", f"two{number}"


def mirror(cli: Cli, verb: str, aliases: tuple[str, str], *words: str) -> Finished:
    return cli("mirror", verb, *aliases, "--to", cli.bootstrap, *words)


def test_a_mirror_that_has_never_run_has_lags_without_positions(cli: Cli, aliases: tuple[str, str]) -> None:
    topic = cli.topic()
    done = mirror(cli, "status", aliases, "--topics", topic)
    assert done.code == OK and "0 records behind in 1 partition, 1 without a position" in done.err


@pytest.mark.parametrize("words", [["--once"], ["--dry-run"]])
def test_two_aliases_of_one_cluster_are_refused_before_a_topic_is_made(
    cli: Cli, aliases: tuple[str, str], words: list[str]
) -> None:
    done = mirror(cli, "run", aliases, "--topics", cli.topic(), *words)
    assert done.code == FAILED and f"{aliases[0]} and {aliases[1]} are the same cluster" in done.err
    assert cli.rows("topic", "list", "--internal", f"*{aliases[0]}*") == []


def test_offsets_where_no_mirror_of_this_name_has_run(cli: Cli, here: Run, aliases: tuple[str, str]) -> None:
    for groups in ([], ["readers"]):
        done = here("mirror", "offsets", aliases[0], *groups)
        assert (done.code, done.out) == (FAILED, "")
        assert f"no mirror from {aliases[0]} has translated offsets in this cluster" in done.err


def test_offsets_of_a_group_that_no_worker_has_translated(cli: Cli, here: Run, aliases: tuple[str, str]) -> None:
    cli.ok("topic", "create", f"{aliases[0]}.checkpoints.internal")
    assert cli.rows("mirror", "offsets", aliases[0]) == []
    done = here("mirror", "offsets", aliases[0], "readers")
    assert done.code == FAILED and f"group readers has no checkpoint from {aliases[0]}" in done.err
    assert f"`ottla mirror run {aliases[0]} TARGET` translates them" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a a", "a cannot be mirrored to itself"),
        ("a b.c", "'b.c' is no alias of a cluster"),
        ("a b --topics [", "is no regular expression"),
        ("a b --policy none", "--policy 'none' is none of default, identity"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "status"])
def test_words_that_name_no_mirror(here: Run, verb: str, words: str, said: str) -> None:
    done = here("mirror", verb, *words.split(), "--to", "127.0.0.1:1")
    assert (done.code, done.out) == (USAGE, "") and said in done.err


def test_aliases_without_addresses_are_names_of_contexts(
    cli: Cli, here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = here("mirror", "status", "east", "west", "--to", cli.bootstrap, "--context", "east")
    assert done.code == USAGE and "there is no context 'east'" in done.err
    cli.ok("context", "set", "east", "-b", cli.bootstrap)
    done = here("mirror", "status", "east", "west", "--context", "east")
    assert done.code == USAGE and "there is no context 'west'" in done.err
    cli.ok("context", "set", "west", "-b", cli.bootstrap)
    done = here("mirror", "status", "east", "west", "--topics", cli.topic(), "--context", "east")
    assert done.code == OK, done.err
