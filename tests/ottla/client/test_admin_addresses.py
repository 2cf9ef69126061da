"""The addresses of brokers' admin listeners: named ones, those with a port, and those from the file of a local cluster."""

from __future__ import annotations

from ottla.client.admin_listeners import AdminAddresses

HOSTS = {1: "a", 2: "b", 3: "c"}


def test_an_address_that_is_named_wins_over_the_port_and_the_port_over_what_is_written_down() -> None:
    written = {"local": {1: "here:1", 2: "here:2"}}
    here = AdminAddresses(here=lambda cluster_id: written.get(cluster_id or "", {}))
    assert here.of("local", HOSTS) == {1: "here:1", 2: "here:2"}
    assert here.of("another", HOSTS) == here.of(None, HOSTS) == {}
    named = AdminAddresses({2: "named:2"}, here=here.here)
    assert named.of("local", HOSTS) == {1: "here:1", 2: "named:2"}
    with_port = AdminAddresses({2: "named:2"}, 9644, here.here)
    assert with_port.of("local", HOSTS) == {1: "a:9644", 2: "named:2", 3: "c:9644"}


def test_what_is_written_down_is_of_brokers_of_the_cluster_and_what_is_named_may_be_of_one_that_is_away() -> None:
    here = AdminAddresses({9: "named:9"}, here=lambda cluster_id: {1: "here:1", 7: "here:7"})
    assert here.of("local", {1: "a"}) == {1: "here:1", 9: "named:9"}
