"""40,000 questions to Apache Kafka's own StandardAuthorizer and to ours: principals of several types, super users, hosts, defaults.

Names that begin with `*` are left out (docs/DIFFERENCES.md), as are networks, which Kafka 4.3 does not know.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.authorizer import StandardAuthorizer
from ottla.server.authorization.operations import (
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    PREFIXED,
    SUPPORTED_OPERATIONS,
    WILDCARD,
)
from ottla.server.network.context import RequestContext
from ottla.server.principal import Principal
from tests.needs import needs_apache_kafka
from tests.server.authorization.callers import caller
from tools.apache_kafka.programs import compiled, java_command

JAVA = Path(__file__).parent / "java" / "Decisions.java"
WORLDS, QUESTIONS = 400, 100
PRINCIPALS = tuple(
    Principal(kind, name)
    for kind in ("User", "Group", "Role")
    for name in ("alice", "bob", "ANONYMOUS", "CN=eve,O=x", "*")
)
#: Kafka fails for a caller that is called User:*.
CALLERS = tuple(principal for principal in PRINCIPALS if principal.name != "*")
#: As entries are written and as Kafka prints addresses.
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:9")
NAMES = ("a", "b", "ab", "aa", "abc", "a.b", "b-", "longer-name", "longer")


class World:
    """Entries, and the questions about them."""

    def __init__(self, rng: random.Random) -> None:
        self.super_user = str(rng.choice(PRINCIPALS))
        self.allow_if_no_acl = rng.random() < 0.5
        self.entries = list({self._entry(rng): None for _ in range(rng.randrange(40))})
        self.questions = [self._question(rng) for _ in range(QUESTIONS)]

    def _entry(self, rng: random.Random) -> AccessControlEntry:
        kind = rng.choice(list(SUPPORTED_OPERATIONS))
        pattern = PREFIXED if kind != CLUSTER and rng.random() < 0.4 else LITERAL
        name = CLUSTER_NAME if kind == CLUSTER else rng.choice(NAMES)
        if pattern == LITERAL and rng.random() < 0.2:
            name = WILDCARD
        principal = "User:*" if rng.random() < 0.2 else str(rng.choice(PRINCIPALS))
        host = WILDCARD if rng.random() < 0.5 else rng.choice(HOSTS)
        operation = rng.choice((2, *SUPPORTED_OPERATIONS[kind]))
        return AccessControlEntry(kind, name, pattern, principal, host, operation, rng.choice((ALLOW, ALLOW, DENY)))

    @staticmethod
    def _question(rng: random.Random) -> tuple[Principal, str, int, int, str | None]:
        """Return the question whether the operation is allowed. Without a name it is about any resource of the type."""
        kind = rng.choice(list(SUPPORTED_OPERATIONS))
        name = CLUSTER_NAME if kind == CLUSTER else rng.choice(NAMES)
        any_resource = kind != CLUSTER and rng.random() < 0.2
        operation = rng.choice(SUPPORTED_OPERATIONS[kind])
        return rng.choice(CALLERS), rng.choice(HOSTS), operation, kind, None if any_resource else name

    def lines(self) -> list[str]:
        lines = [f"world\t{self.super_user}\t{str(self.allow_if_no_acl).lower()}"]
        lines += ["\t".join(map(str, ("entry", *entry))) for entry in self.entries]
        lines += [
            "\t".join(map(str, ("any" if name is None else "ask", principal, host, operation, kind, name or "")))
            for principal, host, operation, kind, name in self.questions
        ]
        return lines

    def answers(self) -> list[str]:
        authorizer = StandardAuthorizer([self.super_user], allow_if_no_acl=self.allow_if_no_acl)
        authorizer.change((), self.entries)
        return [
            "ALLOWED" if _is_allowed(authorizer, caller(principal, host), operation, kind, name) else "DENIED"
            for principal, host, operation, kind, name in self.questions
        ]


def _is_allowed(
    authorizer: StandardAuthorizer, context: RequestContext, operation: int, kind: int, name: str | None
) -> bool:
    if name is None:
        return authorizer.allows_any(context, operation, kind)
    return authorizer.allows(context, operation, kind, name)


@pytest.mark.compat
@needs_apache_kafka
def test_forty_thousand_decisions_are_kafkas() -> None:
    rng = random.Random(12)
    worlds = [World(rng) for _ in range(WORLDS)]
    lines = [line for world in worlds for line in world.lines()]
    done = subprocess.run(
        java_command("Decisions", extra_classpath=str(compiled(JAVA))),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kafkas = done.stdout.split()
    ours = [answer for world in worlds for answer in world.answers()]
    assert len(kafkas) == len(ours) == WORLDS * QUESTIONS == 40_000
    asked = [(world, question) for world in worlds for question in world.questions]
    different = [
        f"{question}: Kafka {kafka}, here {own}, super user {world.super_user}, default {world.allow_if_no_acl}, {world.entries}"
        for (world, question), kafka, own in zip(asked, kafkas, ours, strict=True)
        if kafka != own
    ]
    assert not different, f"{len(different)} are different, such as {different[:3]}"
    assert 4_000 < kafkas.count("ALLOWED") < 36_000
