"""Two mirrors in opposite directions that keep names: no record is mirrored in a circle, and a direction can be reversed."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, cast

from ottla.cli.errors import FAILED
from ottla.client.failures import Failure
from ottla.mirror.catalogue import Catalogue
from ottla.mirror.names import DEFAULT, IDENTITY, Policy, Selection
from ottla.mirror.opposite import Brings, Foreign, _alias_of, circles, decoded
from tests.ottla.conftest import Finished, run_here
from tests.ottla.mirror.conftest import GROUP, Mirror


def opposite(mirror: Mirror) -> Mirror:
    """The mirror from the east to the west, with its own workers."""
    return replace(mirror, west=mirror.east, east=mirror.west, workers=[], log=mirror.log.with_name("opposite.log"))


def back(mirror: Mirror, *options: str, topics: str = "") -> Finished:
    """A run from the east to the west, under other aliases than those of the first direction."""
    sides = ["-b", mirror.east.bootstrap, "--to", mirror.west.bootstrap, "--topics", topics or f"{mirror.name}.*"]
    return run_here("mirror", "run", "e", "w", *sides, "--policy", "identity", "--no-heartbeats", *options)


def has_worker(mirror: Mirror) -> bool:
    try:
        return mirror.members() == 1
    except Failure:  # there is no such group yet
        return False


def test_a_mirror_is_refused_while_one_runs_that_would_bring_its_topics_back(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["1"])
    mirror.start("--policy", "identity")
    mirror.until(lambda: mirror.positions(topic) == {0: 1}, "the first record")
    refused = back(mirror, "--once")
    assert refused.code == FAILED
    assert f"{topic} would go round in a circle: a mirror from w to e runs, of the group {GROUP}" in refused.err
    assert f"would not mirror {topic}, because a mirror from w to e runs" in back(mirror, "--dry-run").err
    own = mirror.east.topic("of-the-east-" + topic, seed=["e"])
    others = back(mirror, "--once", topics=own)
    assert others.code == 0 and [each.value for each in mirror.west.records(own)] == [b"e"], (
        "others are not in a circle"
    )
    mirror.stop()
    assert len(mirror.west.records(topic)) == 1


def test_a_direction_can_be_turned_around_once_its_mirror_has_stopped(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["1", "2"])
    mirror.once("--policy", "identity")
    other = opposite(mirror)
    mirror.workers.append(other.start("--policy", "identity", "--begin", "latest"))  # it is killed if the test fails

    def has_come() -> bool:
        mirror.east.write(topic, ["new"])  # records from before the worker's start are not mirrored
        return len(mirror.west.records(topic)) > 2

    other.until(has_come, "what was written in the east")
    other.stop()
    assert {each.value for each in mirror.west.records(topic)[2:]} == {b"new"}


def test_two_that_began_at_the_same_moment_both_leave_out_what_would_go_round(mirror: Mirror) -> None:
    """Each was started before either cluster had the topic, as if neither had noticed the other."""
    other = opposite(mirror)
    mirror.start("--policy", "identity")
    mirror.workers.append(other.start("--policy", "identity"))
    mirror.until(lambda: has_worker(mirror) and has_worker(other), "both workers are members")
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["1"])
    mirror.until(lambda: f"would bring them back (stop one of both): {topic}" in mirror.said(), "it says so")
    assert topic not in {each.name for each in mirror.east.metadata().topics}
    other.stop()
    mirror.until(lambda: mirror.positions(topic) == {0: 1}, "the one that is left goes on by itself")
    mirror.stop()


def test_what_a_member_says_names_the_topics_that_it_brings_by_its_policy() -> None:
    same = Brings("id", "e", IDENTITY, Selection(("a.*",), ("ab",)))
    default = same._replace(kind=DEFAULT)
    for each in (same, default):
        said = decoded(json.dumps({"lanes": [], "brings": each.encoded()}).encode())
        assert said is not None and said.encoded() == each.encoded()
    names = ["a", "ab", "b", "e.a", "heartbeats", "a.heartbeats"]
    assert circles(names, {"g": [same]}) == ["a"]
    assert circles(names, {"g": [default]}) == ["e.a"]
    for bad in (
        b"",
        b"{}",
        b'{"brings": 1}',
        b'{"brings": {"id": "i", "alias": "e", "names": "identity", "topics": [1], "exclude": []}}',
        b'{"brings": {"id": "i", "alias": "e", "names": "identity", "topics": ["%s"], "exclude": []}}' % (b"a" * 1_001),
    ):
        assert decoded(bad) is None


def test_an_expression_of_others_costs_linear_time_and_one_that_is_none_may_match_each_name() -> None:
    hostile = Foreign(("(?:[a-z]|[a-z]|[a-z]|[a-z])*!",), ())
    began = time.process_time()
    assert "a" * 200 not in hostile
    assert time.process_time() - began < 1
    assert "t" in Foreign(("(",), ("(",))


def test_a_group_that_says_it_is_a_mirror_without_its_positions_is_not_believed() -> None:
    """Anyone with READ on a group can write this."""
    assert _alias_of("ottla-mirror.e.w") == "e"
    assert all(_alias_of(name) is None for name in ("any", "ottla-mirror", "ottla-mirror.e", "x.ottla-mirror.e.w"))


def test_a_circle_that_appears_later_stops_no_topic_that_is_mirrored() -> None:
    catalogue = Catalogue(cast(Any, None), cast(Any, None), Policy("w", "e", IDENTITY), Selection(), print)
    catalogue._source_counts = {"t": 1}
    catalogue.begin()
    catalogue._opposite = {"ottla-mirror.e.w": [Brings("id", "e", IDENTITY, Foreign((".*",), ()))]}
    assert catalogue.is_mirrored("t") and catalogue.circling == ["t"]
    assert not catalogue.is_mirrored("new")
