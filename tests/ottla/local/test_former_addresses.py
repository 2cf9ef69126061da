"""Nodes of a local cluster do not connect to the former addresses of its nodes, or of the cluster that it was forked from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.client.failures import Failure
from ottla.local.directory import ORIGIN
from ottla.local.former_addresses import FILE, STARTS_MAX, controller_key, detours, note


def test_a_cluster_has_no_detours_at_its_first_start_nor_at_later_ones_on_the_same_ports(tmp_path: Path) -> None:
    here = {"1": "h:11", controller_key(1): "h:21"}
    assert [detours(str(tmp_path), here) for _ in range(3)] == [{}, {}, {}]


def test_on_other_ports_brokers_and_controllers_go_to_each_other_in_place_of_all_their_former_addresses(
    tmp_path: Path,
) -> None:
    detours(str(tmp_path), {"1": "h:1", controller_key(1): "h:21"})
    detours(str(tmp_path), {"1": "h:2", controller_key(1): "h:22"})
    found = detours(str(tmp_path), {"1": "h:3", controller_key(1): "h:23"})
    assert found == {"h:1": "h:3", "h:2": "h:3", "h:21": "h:23", "h:22": "h:23"}


def test_an_address_that_was_first_of_one_node_and_then_of_another_is_the_later_ones(tmp_path: Path) -> None:
    for here in {"1": "h:1", "2": "h:2"}, {"1": "h:2", "2": "h:3"}:
        detours(str(tmp_path), here)
    assert detours(str(tmp_path), {"1": "h:11", "2": "h:12"}) == {"h:1": "h:11", "h:2": "h:11", "h:3": "h:12"}


def test_an_address_that_is_used_again_is_no_former_one(tmp_path: Path) -> None:
    for port in (1, 2):
        detours(str(tmp_path), {"1": f"h:{port}"})
    assert detours(str(tmp_path), {"1": "h:1"}) == {"h:2": "h:1"}
    assert detours(str(tmp_path), {"1": "h:3"}) == {"h:1": "h:3", "h:2": "h:3"}


def test_addresses_of_data_that_was_put_there_are_former_ones_and_the_list_has_an_end(tmp_path: Path) -> None:
    for port in range(100):
        detours(str(tmp_path), {"1": f"h:{port}"})
    note(str(tmp_path), {"1": ["h:200"], "2": ["h:201"]})
    found = detours(str(tmp_path), {"1": "h:300", "2": "h:301"})
    assert found["h:200"] == "h:300" and found["h:201"] == "h:301" and found["h:99"] == "h:300"
    assert len(json.loads((tmp_path / FILE).read_text())["addresses"]["1"]) == STARTS_MAX


def test_what_a_fork_would_send_to_the_nodes_of_its_cluster_goes_to_its_own_at_each_start(tmp_path: Path) -> None:
    (tmp_path / ORIGIN).write_text(json.dumps({"addresses": {"1": ["h:1"], "2": ["h:2", "h:3"]}}))
    assert detours(str(tmp_path), {"1": "h:11", "2": "h:12"}) == {"h:1": "h:11", "h:2": "h:12", "h:3": "h:12"}
    again = detours(str(tmp_path), {"1": "h:12", "2": "h:13"})
    assert again == {"h:1": "h:12", "h:11": "h:12", "h:2": "h:13", "h:3": "h:13"}


@pytest.mark.parametrize("name", [ORIGIN, FILE])
def test_a_cluster_whose_former_addresses_are_not_known_does_not_start(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(Failure, match="is damaged"):
        detours(str(tmp_path), {"1": "h:11"})
