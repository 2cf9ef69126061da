"""The caches by names of clients in the metrics of a node that has all of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from urllib.request import urlopen

import ottla
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.server.authorization.authorizer import DECISIONS_BYTES_MAX, STANDARD_AUTHORIZER
from ottla.server.client_bounds import ENTRY_BYTES
from tests.broker.conftest import start_node, stop_node
from tests.ports import free_ports


def stores() -> set[str]:
    """Return the name that the code gives to each cache."""
    texts = [file.read_text() for file in Path(ottla.__file__).parent.rglob("*.py")]
    return {
        node.args[0].value
        for text in texts
        if "Kept(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Kept"
        and isinstance(node.args[0], ast.Constant)
    }


def test_each_cache_has_its_size_and_its_bound_in_the_metrics() -> None:
    (port,) = free_ports(1)
    node = start_node(
        authorizer_class_name=STANDARD_AUTHORIZER,
        allow_everyone_if_no_acl_found="true",
        ottla_admin_listener=f"127.0.0.1:{port}",
    )
    try:
        with node.wire() as wire:
            wire.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["a-group"]))
        text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    finally:
        stop_node(node)
    found = {
        (name, store): float(value)
        for name, store, value in re.findall(r'^ottla_kept_(\w+)\{store="(\w+)"\} (\S+)$', text, re.M)
    }
    names = {name for name, _ in found}
    assert names == {"entries", "bytes", "bytes_max", "overflows_total"}
    for name in names:
        assert {store for each, store in found if each == name} == stores(), "each cache needs a kept_metrics"
    assert found["entries", "decisions"] >= 1 and found["bytes", "decisions"] > ENTRY_BYTES
    assert found["bytes_max", "decisions"] == DECISIONS_BYTES_MAX and found["overflows_total", "decisions"] == 0
