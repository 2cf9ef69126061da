"""Forks keep away from the cluster that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.errors import CommandFailed
from ottla.cli.local_directory import ORIGIN, detours


def test_what_a_fork_would_send_to_the_brokers_of_its_cluster_goes_to_its_own(tmp_path: Path) -> None:
    (tmp_path / ORIGIN).write_text(json.dumps({"addresses": {"1": ["h:1"], "2": ["h:2", "h:3"]}}))
    assert detours(str(tmp_path), {1: "h:11", 2: "h:12"}) == {"h:1": "h:11", "h:2": "h:12", "h:3": "h:12"}


def test_a_fork_that_is_started_again_keeps_away_from_its_former_addresses_too_unless_they_are_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / ORIGIN).write_text(json.dumps({"addresses": {"1": ["h:1"], "2": ["h:2"]}}))
    detours(str(tmp_path), {1: "h:11", 2: "h:12"})
    assert detours(str(tmp_path), {1: "h:12", 2: "h:13"}) == {"h:1": "h:12", "h:11": "h:12", "h:2": "h:13"}


def test_a_cluster_of_its_own_has_no_detours_and_a_fork_of_unknown_origin_does_not_start(tmp_path: Path) -> None:
    assert detours(str(tmp_path), {1: "h:11"}) == {}
    (tmp_path / ORIGIN).write_text("{}")
    with pytest.raises(CommandFailed, match="is damaged"):
        detours(str(tmp_path), {1: "h:11"})
