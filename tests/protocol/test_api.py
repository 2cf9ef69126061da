"""The table of APIs against the message classes and against what Apache Kafka says."""

from __future__ import annotations

import pytest

from ottla.protocol.api import APIS, BOTH, BROKER, CONTROLLER, Api, ApiKey
from ottla.protocol.schema import info_of
from tests.protocol.catalog import DATA
from tests.protocol.test_messages import facts


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_row_agrees_with_the_classes(api: Api) -> None:
    for cls in (api.request, api.response):
        info = info_of(cls)
        assert info.key == api.key
        assert info.versions == (api.oldest, api.max_version)
        flexible_from = 32767 if api.flexible_from is None else api.flexible_from
        assert [version >= flexible_from for version in info.versions.all()] == [
            version in info.flexible for version in info.versions.all()
        ]
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert api.request.__module__ == f"ottla.protocol.messages.{api.key.name.lower()}"


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_row_agrees_with_the_specification(api: Api) -> None:
    fact = facts()[f"{api.name}Request"]
    assert ",".join(sorted(api.listeners)) == fact.get("listeners")
    assert api.latest_unstable == ("unstable" in fact.words)


def test_keys_and_names_are_kafkas() -> None:
    lines = (DATA / "protocol_facts.txt").read_text().splitlines()
    kafkas = {int(words[1]): (words[2], int(words[3])) for words in map(str.split, lines) if words[0] == "api"}
    assert {int(api.key): (api.name, api.min_version) for api in APIS.values()} == kafkas


def test_numbers() -> None:
    assert len(APIS) == len(ApiKey) == 91
    assert list(APIS) == sorted(APIS)
    assert sum("broker" in api.listeners for api in APIS.values()) == 79
    assert sum("controller" in api.listeners for api in APIS.values()) == 42
    assert {api.listeners for api in APIS.values()} == {BROKER, CONTROLLER, BOTH}
    assert sum(api.max_version - api.min_version + 1 for api in APIS.values()) == 309


def test_only_produce_advertises_more_than_it_serves() -> None:
    """KAFKA-18659: librdkafka needs it."""
    assert [api.key for api in APIS.values() if api.advertised_min != api.min_version] == [ApiKey.PRODUCE]
    assert APIS[ApiKey.PRODUCE].advertised_min == 0


def test_never_flexible() -> None:
    assert [api.key for api in APIS.values() if api.flexible_from is None] == [
        ApiKey.SASL_HANDSHAKE,
        ApiKey.OFFSET_DELETE,
    ]
