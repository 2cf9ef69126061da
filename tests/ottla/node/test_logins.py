"""Decoys of users that do not exist look like an existing user, whichever users exist at the moment, and take little time."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.controller.metadata.scram import ScramImage
from ottla.controller.metadata.shared_map import Map
from ottla.node.security import NodeUsers
from ottla.server.sasl.scram import NUMBERS, ScramCredential

MECHANISM = "SCRAM-SHA-512"


def image(*users: str) -> Any:
    stored = {
        (NUMBERS[MECHANISM], name): ScramCredential(name.encode() * 8, b"", name.encode(), 8192) for name in users
    }
    return SimpleNamespace(scram=ScramImage(Map(stored)))


@pytest.fixture
def node() -> Any:
    world = SimpleNamespace(rng=random.Random(1), clock=None, spawn=None, http=None, workers=None)
    return SimpleNamespace(world=world, config={}, metadata=SimpleNamespace(loader=SimpleNamespace(image=image())))


def test_the_user_that_decoys_are_like_is_looked_for_once_for_each_image(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.node.security.OAuthTokens", lambda world: None)
    looked: list[int] = []
    first = ScramImage.first
    monkeypatch.setattr(ScramImage, "first", lambda scram, number: (looked.append(number), first(scram, number))[1])
    decoy = NodeUsers(node.world, node.config, lambda: node.metadata.loader.image).for_scram.decoy
    assert decoy(MECHANISM, "unknown").iterations == 4096, "there is no user to be like"
    node.metadata.loader.image = image("alice", "bob")
    looked.clear()
    decoys = [decoy(MECHANISM, f"unknown-{number}") for number in range(100)]
    assert sorted(looked) == sorted(NUMBERS.values()), "a peer without a login made a node look at all users each time"
    assert {(len(each.salt), each.iterations) for each in decoys} == {(40, 8192)}
    node.metadata.loader.image = image("bob")
    assert len(decoy(MECHANISM, "unknown").salt) == 24, "alice has gone"
