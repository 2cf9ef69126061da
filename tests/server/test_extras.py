"""If a package has no wheel, a node says so: each feature is rejected with the missing package, and the rest of the node works."""

from __future__ import annotations

import sys

import pytest

from ottla.broker.groups.modern.offload import RESOLUTION_WORK_MAX, compiled, matching
from ottla.broker.telemetry.instances import Subscription
from ottla.broker.transactions.transaction_coordinator import matcher
from ottla.cli.declared import read_declared
from ottla.cli.errors import need_extra
from ottla.client.failures import Failure
from ottla.local.secure_files import make
from ottla.mirror.opposite import Foreign
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server import extras
from ottla.server.config.key import ConfigError, require
from ottla.server.config.resource_configs import match_patterns
from ottla.server.extras import CRYPTOGRAPHY
from ottla.server.installation import install


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)


@pytest.mark.usefixtures("without_re2")
def test_without_re2_regular_expressions_are_served_by_a_matcher_of_our_own() -> None:
    assert compiled("orders-.*").fullmatch("orders-1") and compiled("orders-.*").fullmatch("my-orders-1") is None
    assert matcher("a.*")("ab") and not matcher("a.*")("ba")
    assert match_patterns(["client_id=a.*"])["client_id"].fullmatch("ab")


@pytest.mark.usefixtures("without_re2")
def test_without_re2_an_expression_that_is_not_valid_is_refused_all_the_same() -> None:
    with pytest.raises(ValueError, match="missing closing"):
        compiled("a(")
    with pytest.raises(KafkaError) as refused:
        matcher("a**")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(ConfigError, match="Illegal client matching pattern"):
        match_patterns(["client_id=(?!a)"])


#: After each character of the texts below, another set of its states follows.
HOSTILE = "(a|b)*a(a|b){300}c"
LONG = ["".join("ab"[n >> i & 1] for i in range(31)) * 8 for n in (n * 2654435761 for n in range(200))]


@pytest.mark.usefixtures("without_re2")
def test_without_re2_a_hostile_expression_has_bounded_work_wherever_one_is_taken() -> None:
    matches = matcher(HOSTILE)
    with pytest.raises(KafkaError, match="too much work") as refused:
        for text in LONG:
            matches(text)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert matching([extras.compiled(HOSTILE, RESOLUTION_WORK_MAX // 20_000), compiled("a.*")], LONG)[0] is None
    foreign = Foreign((HOSTILE,), ())
    assert [text in foreign for text in LONG][-1], "what cannot be decided may be one of a mirror's topics"
    subscription = Subscription((), 1_000, {"client_id": extras.compiled(HOSTILE, 1_000)})
    assert not any(subscription.matches({"client_id": text}) for text in LONG)


@pytest.fixture
def without_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_wheels")
def test_tls_and_certificates_are_refused_with_the_package_that_is_missing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with pytest.raises(ConfigError, match="TLS needs the Python package cryptography") as refused:
        require(CRYPTOGRAPHY, "TLS", "listener.security.protocol.map", "A:SSL")
    assert "distribution" in refused.value.what_to_try
    with pytest.raises(Failure, match="making certificates needs the Python package cryptography"):
        make(str(tmp_path_factory.mktemp("secure") / "new"), {"n1": ["localhost"]})


@pytest.mark.usefixtures("without_wheels")
def test_a_declaration_is_refused_with_the_package_that_is_missing() -> None:
    with pytest.raises(Failure, match="reading a declaration needs the Python package yaml"):
        read_declared("topics: {}", "cluster.yml")


def test_an_extra_that_is_there_in_part_is_refused_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "fastavro" else object())
    with pytest.raises(Failure, match="the registry needs the package fastavro") as refused:
        need_extra("registry", "the registry")
    assert refused.value.remedy == install("registry")
    need_extra("console", "the console")


def test_a_package_within_another_one_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google", None)
    # another test of this process may have imported it
    monkeypatch.delitem(sys.modules, "google.protobuf", raising=False)
    assert extras.lacking("registry") == "google.protobuf"


def test_what_is_installed_is_not_refused() -> None:
    require(CRYPTOGRAPHY, "TLS", "listener.security.protocol.map", "A:SSL")
    assert compiled("a.*").fullmatch("ab") is not None
