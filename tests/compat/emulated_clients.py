"""Clients' own suites at nodes that emulate releases: kafka-python's whole, librdkafka's allowed tests, and a program of aiokafka.

What a suite does not do at a release it leaves out by itself: each is given the release as the version of its broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from ottla.protocol.releases import KAFKA_VERSIONS, release_name
from tests.compat import kafka_python, librdkafka
from tests.compat.ecosystem import suite as ecosystem
from tests.compat.librdkafka import Case, Outcome, Server
from tests.compat.node import running_node
from tests.ports import free_base_port

CLIENTS = ("kafka-python", "librdkafka", "aiokafka")
#: Tests of librdkafka wait more than they work: so many at once.
AT_ONCE = 3
ALLOWED = Path(__file__).parent / "librdkafka_allow.txt"


def outcomes(names: list[str], logs: Path, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Run the suites at the named releases, or at all; other names are those of clients, and numbers of librdkafka's tests."""
    releases = [name for name in names if "." in name] or KAFKA_VERSIONS
    numbers = frozenset(name for name in names if name.isdecimal())
    clients = [each for each in CLIENTS if each in names] or (["librdkafka"] if numbers else list(CLIENTS))
    found = [
        report(replace(outcome, name=f"{outcome.name}-at-{name}"))
        for name in releases
        for outcome in _at(release_name(name), clients, numbers, logs / name)
    ]
    return [outcome for outcome in found if outcome.result != "SKIP"]


def _at(release: str, clients: list[str], numbers: frozenset[str], logs: Path) -> Iterator[Outcome]:
    logs.mkdir()
    if "kafka-python" in clients:
        kafka_python.build()
        with _node(release, logs, "kafka-python") as bootstrap:
            yield from kafka_python.run(bootstrap, logs, version=release)
    if "aiokafka" in clients:
        with _node(release, logs, "aiokafka") as bootstrap:
            for outcome, _ in ecosystem.outcomes(["aiokafka"], bootstrap, logs):
                yield outcome
    if "librdkafka" in clients and librdkafka.missing() is None:
        librdkafka.build()
        allowed = [
            case
            for case in librdkafka.read_allow_list(ALLOWED)
            if (case.number in numbers if numbers else _can_pass(case, release))
        ]
        for scenario, properties in librdkafka.SCENARIOS.items():
            cases = [case for case in allowed if case.scenario == scenario and not case.sockem]
            if cases:
                with _node(release, logs, scenario, **properties) as bootstrap, ThreadPoolExecutor(AT_ONCE) as threads:
                    server = Server(bootstrap, version=release)
                    yield from threads.map(lambda case, at=server: librdkafka.run(case, at, logs), cases)


def _can_pass(case: Case, release: str) -> bool:
    return _numbers(case.since) <= _numbers(release) and (not case.not_at or release_name(case.not_at) != release)


def _numbers(release: str) -> list[int]:
    return [int(each) for each in release.split(".") if each]


def _node(release: str, logs: Path, name: str, **properties: str) -> AbstractContextManager[str]:
    """Start a node that emulates a release. Before 4.0 kafka-python's suite wants advertised.listeners at its default."""
    own = {"advertised_listeners": ""} if release < "4" else {}
    return running_node(
        free_base_port(), logs / f"node-{name}.log", ottla_advertised_release=release, **own, **properties
    )
