"""Every property is read somewhere, or is in the table of properties that are rejected or have no effect, but not both."""

from __future__ import annotations

import ast
import fnmatch
from functools import cache

import pytest

from ottla.server.config.broker import (
    BROKER_CONFIGS,
    DYNAMIC_ONLY,
    FAMILIES,
    NO_EFFECT,
    READ_OF_FAMILIES,
    REJECTED,
    Effect,
    effect_of,
)
from ottla.server.config.resource_configs import TOPIC_CONFIGS, TOPIC_SYNONYMS
from ottla.server.config.tables import topic_tables
from ottla.storage.log_config import LogConfig
from tests.rules.sources import dotted, nodes_of, sources

#: Tables that name a property without reading it, and tools that write or check a node's file.
NOT_READERS = (
    "server/config/",
    "protocol/features.py",
    "ottla/container/",
    "ottla/cli/commands/",
    "ottla/cli/shims/",
    "ottla/node/default_node.py",
    "ottla/local/nodes.py",
    "ottla/local/storage_format.py",
)
#: The files of server/config that read properties: listeners and roles become a node's addresses there, and places of tables
#: are checked.
READERS = (
    "server/config/node_config.py",
    "server/config/remote_storage.py",
    "server/config/rsm_settings.py",
    "server/config/listeners.py",
    "server/config/table_places.py",
)
#: A topic's properties that are read nowhere: segments are copied to remote storage without a lag.
TOPIC_WITHOUT_EFFECT = frozenset({"remote.copy.lag.bytes", "remote.copy.lag.ms"})


@cache
def texts() -> tuple[frozenset[str], frozenset[str]]:
    """All string constants of the code that may read a property, and all names of attributes."""
    strings: set[str] = set()
    attributes: set[str] = set()
    for source in sources():
        if source.path.startswith(NOT_READERS) and source.path not in READERS:
            continue
        for node in nodes_of(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and node.module == topic_tables.__name__:
                strings |= {str(getattr(topic_tables, alias.name)) for alias in node.names}
            elif (
                isinstance(node, ast.Call)
                and dotted(node.func) == "getattr"
                and isinstance(node.args[1], ast.JoinedStr)
            ):
                # A codec's level: f"compression_{name}_level".
                parts = [each.value if isinstance(each, ast.Constant) else "*" for each in node.args[1].values]
                attributes |= set(fnmatch.filter(LogConfig.__slots__, "".join(map(str, parts))))
    # Topics' configs that stand for a broker's value are written so, as "{offsets.topic.segment.bytes}".
    strings |= {text[1:-1] for text in strings if text.startswith("{") and text.endswith("}")}
    return frozenset(strings), frozenset(attributes)


def is_topic_property_read(name: str) -> bool:
    strings, attributes = texts()
    field = "segment_bytes" if name == "internal.segment.bytes" else name.replace(".", "_")
    return name in strings or (field in LogConfig.__slots__ and field in attributes)


def is_read(name: str) -> bool:
    if name in texts()[0]:
        return True
    stands_for = [topic for topic, names in TOPIC_SYNONYMS.items() if name in {synonym for synonym, _ in names}]
    return any(is_topic_property_read(topic) for topic in stands_for)


@pytest.mark.parametrize("name", sorted({**BROKER_CONFIGS, **DYNAMIC_ONLY}))
def test_a_brokers_property_is_read_or_marked(name: str) -> None:
    if effect_of(name) is Effect.READ:
        assert is_read(name), f"{name} is read nowhere: implement it, or put it into server/config/broker.py"
    else:
        assert not is_read(name), f"{name} is read, and server/config/broker.py says {effect_of(name).value}"


def test_a_topics_property_is_read_or_marked() -> None:
    unread = {name for name in TOPIC_CONFIGS if not is_topic_property_read(name)}
    assert unread == TOPIC_WITHOUT_EFFECT


def test_the_table_names_properties_that_exist_and_each_once() -> None:
    known = BROKER_CONFIGS.keys() | DYNAMIC_ONLY.keys()
    single = [name for names in NO_EFFECT.values() for name in names]
    assert len(single) == len(set(single))
    assert set(single) | set(REJECTED) | READ_OF_FAMILIES <= known
    assert not set(single) & set(REJECTED)
    for family in FAMILIES:
        assert any(name.startswith(family) for name in known), family
        assert not [name for name in single if name.startswith(family)], family
