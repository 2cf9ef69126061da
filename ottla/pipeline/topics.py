"""Checks before Spark is started: the cluster can be reached, and the topics of source and sinks exist.

Spark would detect the same, but after a minute and in eighty lines. Client settings here have librdkafka's names.
"""

from __future__ import annotations

import difflib
import json
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ottla.pipeline import broker_table, login
from ottla.pipeline.config import Config
from ottla.pipeline.errors import PipelineError
from ottla.server.address import Address, NoAddress, parse_addresses

ANSWER_SECONDS_MAX = 10
#: A broker that does not accept a connection within this time will not do so within Spark's minute either.
CONNECT_SECONDS_MAX = 3
COMPACTED = {"cleanup.policy": "compact"}


def client_settings(config: Config) -> dict[str, Any]:
    options = {name.removeprefix("kafka."): value for name, value in config.kafka.options.items()}
    return {"bootstrap.servers": config.kafka.bootstrap_servers, "log_level": 2, **login.for_librdkafka(options)}


def wanted(config: Config) -> dict[str, dict[str, str]]:
    kafka = config.kafka
    return {
        kafka.events: broker_table.configs(config),
        kafka.dead_letters: {},
        kafka.pages: COMPACTED,
        kafka.sessions: COMPACTED,
    }


def ensure(config: Config) -> None:
    """Create the missing topics, and reject a source that does not exist."""
    addresses = bootstrap_addresses(config)
    failures = closed(addresses)
    if len(failures) == len(addresses):
        raise unreachable(config, listed(failures))
    admin = AdminClient(client_settings(config))
    try:
        found = admin.list_topics(timeout=ANSWER_SECONDS_MAX)
    except KafkaException as error:
        raise unreachable(config, error.args[0].str()) from None
    check_brokers(config, [(broker.host, broker.port) for broker in found.brokers.values()])
    missing = [
        NewTopic(name, config.kafka.partitions, config.kafka.replication_factor, config=settings)
        for name, settings in wanted(config).items()
        if name not in found.topics
    ]
    for name, future in (admin.create_topics(missing) if missing else {}).items():
        try:
            future.result(ANSWER_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineError(
                    f"cannot create topic {name}: {error.args[0].str()}",
                    remedy="create it yourself, or correct [kafka]",
                ) from None
    if broker_table.is_read(config) and config.kafka.events in found.topics:
        check_table(config, admin)
    there = {name: len(topic.partitions) for name, topic in found.topics.items()}
    check_source(config, {**dict.fromkeys(wanted(config), config.kafka.partitions), **there})


def check_table(config: Config, admin: AdminClient) -> None:
    """Raise PipelineError if the topic of events exists, but is no table that the pipeline can read."""
    topic = ConfigResource(ResourceType.TOPIC, config.kafka.events)
    entries = admin.describe_configs([topic])[topic].result(ANSWER_SECONDS_MAX)
    given = entries.get(broker_table.FORMAT)
    if given is None or given.value != broker_table.PARQUET:
        raise PipelineError(
            f"{config.kafka.events} is no table of Parquet",
            remedy=f"ottla config set topic {config.kafka.events} {broker_table.FORMAT}={broker_table.PARQUET}",
        )


def closed(addresses: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return the addresses that accept no connection, with the reasons."""
    failures: dict[str, str] = {}
    for host, port in addresses:
        try:
            socket.create_connection((host, port), CONNECT_SECONDS_MAX).close()
        except OSError as error:
            failures[f"{host}:{port}"] = error.strerror or str(error)
    return failures


def bootstrap_addresses(config: Config) -> list[Address]:
    try:
        return parse_addresses(config.kafka.bootstrap_servers)
    except NoAddress as fault:
        raise PipelineError(f"kafka.bootstrap_servers: {fault}", remedy="write host:port, comma separated") from None


def check_brokers(config: Config, addresses: list[tuple[str, int]]) -> None:
    """Return the addresses that the cluster advertises: they may all fail although the bootstrap address works."""
    failures = closed(addresses)
    if failures and len(failures) == len(addresses):
        raise PipelineError(
            f"the cluster answers at {config.kafka.bootstrap_servers}, but advertises {listed(failures)}",
            remedy="correct the brokers' advertised.listeners, or bootstrap from the listener made for this side",
        )
    if failures:
        print(f"ottla-pipeline: not every broker can be reached: {listed(failures)}", file=sys.stderr)


def listed(failures: Mapping[str, str]) -> str:
    return ", ".join(f"{address} ({why})" for address, why in failures.items())


def check_source(config: Config, partitions: Mapping[str, int]) -> None:
    """Check that the topics and partitions of the source exist. A pattern may match topics later."""
    source = config.source
    if source.assign:
        asked = {name: max(numbers, default=-1) + 1 for name, numbers in json.loads(source.assign).items()}
    elif source.subscribe_pattern:
        asked = {}
        try:
            is_alone = not any(re.fullmatch(source.subscribe_pattern, name) for name in partitions)
        except re.error:  # Java has to judge it, which knows other forms
            is_alone = False
        if is_alone:
            print(f"ottla-pipeline: no topic matches {source.subscribe_pattern} yet", file=sys.stderr)
    else:
        asked = {name.strip(): 0 for name in source.subscribe.split(",") if name.strip()}
    for name, count in asked.items():
        if name not in partitions:
            near = difflib.get_close_matches(name, partitions, 1)
            raise PipelineError(
                f"a topic of the source does not exist: {name}",
                remedy=f"did you mean {near[0]}?" if near else "create it, or correct [source] subscribe or assign",
            )
        if count > partitions[name]:
            raise PipelineError(
                f"source.assign names partition {count - 1} of {name}, which has {partitions[name]}",
                remedy=f"its partitions are 0 to {partitions[name] - 1}",
            )


def unreachable(config: Config, cause: str) -> PipelineError:
    return PipelineError(
        f"no broker answers at {config.kafka.bootstrap_servers} ({cause})",
        remedy="check kafka.bootstrap_servers, and that the advertised listener of the cluster can be reached from here",
    )
