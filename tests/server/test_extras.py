"""What a node says where a package has no wheel: each feature is refused with what it lacks, and the node is otherwise whole."""

from __future__ import annotations

import sys

import pytest

from ottla.broker.groups.modern.offload import compiled
from ottla.broker.transactions.transaction_coordinator import matcher
from ottla.cli.declared import read_declared
from ottla.cli.errors import CommandFailed
from ottla.cli.secure_files import make
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server import extras
from ottla.server.config.key import ConfigError, require
from ottla.server.config.resource_configs import match_patterns
from ottla.server.extras import CRYPTOGRAPHY


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)


@pytest.mark.usefixtures("without_re2")
def test_regular_expressions_are_refused_with_the_extra_that_brings_them() -> None:
    with pytest.raises(ValueError, match=r"ottla\[regex\]"):
        compiled("a.*")
    with pytest.raises(KafkaError, match=r"ottla\[regex\]") as refused:
        matcher("a.*")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(ConfigError, match=r"client_id=a.*ottla\[regex\]"):
        match_patterns(["client_id=a"])
    assert match_patterns([]) == {} and matcher("")("anything"), "what has no expression needs no engine"


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
    with pytest.raises(CommandFailed, match="making certificates needs the Python package cryptography"):
        make(str(tmp_path_factory.mktemp("secure") / "new"), {"n1": ["localhost"]})


@pytest.mark.usefixtures("without_wheels")
def test_a_declaration_is_refused_with_the_package_that_is_missing() -> None:
    with pytest.raises(CommandFailed, match="reading a declaration needs the Python package yaml"):
        read_declared("topics: {}", "cluster.yml")


def test_what_is_installed_is_not_refused() -> None:
    require(CRYPTOGRAPHY, "TLS", "listener.security.protocol.map", "A:SSL")
    assert compiled("a.*").fullmatch("ab") is not None
