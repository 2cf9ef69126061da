"""Texts: patterns, names and configurations that clients send, the first lines of HTTP requests, the files of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.transactions.transaction_coordinator import matcher
from ottla.container.settings import ContainerError, read_file, write_file
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.server.admin import read_request
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.dynamic import check_broker_configs
from ottla.server.config.key import REQUIRED, ConfigError
from ottla.server.config.resource_configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    check_client_metrics,
    check_group_configs,
    check_topic_configs,
)
from ottla.server.sasl.jaas import JaasError, read_sections
from ottla.storage.log_config import LogConfig
from tests.fuzz.target import Target, equal

BROKER_VALUES = {name: None if key.default is REQUIRED else key.default for name, key in BROKER_CONFIGS.items()}


def _text(data: bytes) -> str:
    """Return the text in the form that a request would give it, where strings are UTF-8."""
    return data.decode("utf-8", "ignore")


def configs(data: bytes) -> None:
    """Set a configuration, by its place in one of the tables, to a value of a client."""
    if len(data) < 2:
        return
    names, check = _TABLES[data[0] % len(_TABLES)]
    name, text = names[data[1] % len(names)], _text(data[2:])
    check({name: text})


def _check_topic(values: dict[str, str]) -> None:
    from ottla.server.config.resource_configs import topic_values

    check_topic_configs(values, BROKER_VALUES)
    parsed = topic_values(values, BROKER_VALUES)
    LogConfig.from_topic_configs(parsed)
    for name in values:
        written = TOPIC_CONFIGS[name].to_text(parsed[name])
        equal(TOPIC_CONFIGS[name].parse(written), parsed[name], f"{name} read again")


_TABLES: list[tuple[list[str], Callable[[dict[str, str]], None]]] = [
    (sorted(TOPIC_CONFIGS), _check_topic),
    (sorted(GROUP_CONFIGS), lambda values: check_group_configs(values, BROKER_VALUES)),
    (sorted(CLIENT_METRICS_CONFIGS), check_client_metrics),
    (sorted(BROKER_CONFIGS), lambda values: check_broker_configs(values, per_broker=True)),
]


def config_seeds() -> Iterator[bytes]:
    texts = [
        "5",
        "-1",
        "true",
        "compact,delete",
        "1.5e3",
        "producer",
        "0:1,1:2",
        "*",
        "client_id=a.*,client_id=[b",
        "a:9,[::1]:9",
    ]
    for table, (names, _) in enumerate(_TABLES):
        for place, _name in enumerate(names[:256]):
            yield bytes((table, place)) + texts[(place * 7) % len(texts)].encode()
    place = sorted(CLIENT_METRICS_CONFIGS).index("match")
    yield from (bytes((2, place)) + text.encode() for text in ("client_id=(a|b)+c{2,3}", "client_id=(?P<x>a)(?P=x)"))


def patterns(data: bytes) -> None:
    """Match the pattern of a ListTransactions request against an id."""
    pattern, _, subject = _text(data).partition("\0")
    matcher(pattern)(subject)


def others(data: bytes) -> None:
    """Read the text by the reader that the first byte says: HTTP head, JAAS file, properties file, id in base64."""
    if data:
        _READERS[data[0] % len(_READERS)](data[1:])


def _jaas(data: bytes) -> None:
    sections = read_sections(_text(data))
    for modules in sections.values():
        for module in modules:
            assert module.mechanisms is not None and module.text()


def _properties(data: bytes) -> None:
    properties = read_file(data, "a file")
    equal(read_file(write_file(properties).encode(), "a file"), properties, "properties read again")


def _uuid(data: bytes) -> None:
    try:
        uuid = uuid_from_str(_text(data))
    except ValueError:
        return
    equal(uuid_from_str(uuid_to_str(uuid)), uuid, "the id read again")


_READERS: list[Callable[[bytes], Any]] = [read_request, _jaas, _properties, _uuid]


def other_seeds() -> Iterator[bytes]:
    yield b"\0GET /metrics?x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 0"
    yield b'\1KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required\n username="a" user_b="c"; };'
    yield b"\2a=b\n# x\nlong=first \\\n  second\nunicode=\\u00e9\n k : v\n"
    yield b"\3AAAAAAAAAAAAAAAAAAAAAQ"


TARGETS = [
    Target("configs", configs, config_seeds, (ConfigError,), bytes_max=256, share=6),
    Target(
        "patterns",
        patterns,
        lambda: [b"a.*\0abc", b"(a|b){1,5}c+$\0aaac", b"[[:alpha:]]\\pL\0x"],
        (KafkaError,),
        256,
        5,
    ),
    Target("texts", others, other_seeds, (ContainerError, JaasError), bytes_max=512, share=5),
]
