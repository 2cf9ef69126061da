"""`ottla user` against a node."""

from __future__ import annotations

import json

from ottla.cli.errors import FAILED, USAGE
from tests.ottla.cli.commands.conftest import Run


def users(here: Run, *names: str) -> list[tuple[str, str, int]]:
    done = here("user", "list", *names, "-o", "json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    return [(row["user"], row["mechanism"], row["iterations"]) for row in rows]


def test_a_user_is_created_listed_changed_and_deleted(here: Run) -> None:
    assert here("user", "create", "ann", stdin="secret\n").code == 0
    assert here("user", "create", "ann", "-m", "SCRAM-SHA-256", "--iterations", "8192", stdin="other\n").code == 0
    assert users(here, "ann") == [("ann", "SCRAM-SHA-256", 8192), ("ann", "SCRAM-SHA-512", 4096)]
    changed = here("user", "passwd", "ann", "--generate")
    assert changed.code == 0 and len(changed.out.strip()) >= 20 and "SCRAM-SHA-256, SCRAM-SHA-512" in changed.err
    assert here("user", "delete", "ann").code == 0
    assert "ann" not in {name for name, _, _ in users(here)}


def test_what_is_wrong_with_a_user_is_said(here: Run) -> None:
    assert here("user", "create", "bob", stdin="").code == USAGE
    assert here("user", "create", "bob", stdin="x\n").code == 0
    twice = here("user", "create", "bob", stdin="x\n")
    assert twice.code == FAILED and "ottla user passwd bob" in twice.err
    for verb in ("passwd", "delete"):
        missing = here("user", verb, "bobb", stdin="x\n")
        assert missing.code == FAILED and "did you mean 'bob'?" in missing.err
    few = here("user", "create", "cat", "--iterations", "5", stdin="x\n")
    assert few.code == FAILED and "UNACCEPTABLE_CREDENTIAL" in few.err
    assert here("user", "delete", "bob", "--yes").code == 0
