"""The TLS of a node with a clock of the test: principals, and files that are checked for changes.

A cluster's is in tests/cluster/test_tls.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from ottla.local.certificates import Authority
from ottla.server.config.node_config import NodeConfig
from ottla.server.principal import ANONYMOUS
from ottla.server.tls import node_tls
from ottla.server.tls.node_tls import NodeTls
from ottla.server.world import RealWorld
from ottla.storage.errors import failure_of
from ottla.storage.files import OsFiles
from tests.manual_clock import ManualClock
from tests.server.tiny_node import until

AUTHORITY = Authority.create("test CA")
NODE = AUTHORITY.issue("node", ["localhost"])


@pytest.fixture
async def real() -> AsyncIterator[RealWorld]:
    real = RealWorld(asyncio.get_running_loop())
    yield real
    await real.close()


def configured(tmp_path: Path, **properties: str) -> NodeConfig:
    (tmp_path / "node.pem").write_text(NODE.key_pem + NODE.chain_pem)
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    return NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "SSL://:0,SASL_SSL://:0,CONTROLLER://:0",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "node.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
        }
        | {name.replace("_", "."): text for name, text in properties.items()}
    )


async def test_the_principal_is_the_mapped_name_of_the_certificate(tmp_path: Path, real: RealWorld) -> None:
    tls = NodeTls(real.world, configured(tmp_path, ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/U"))
    listener = tls.of_listener("SSL", "SSL")
    assert str(listener.principal(NODE.certificate.public_bytes(Encoding.DER))) == "User:NODE"
    assert listener.principal(None) == ANONYMOUS
    tls.stop()


async def test_a_listener_with_sasl_asks_for_certificates_only_with_its_own_property(
    tmp_path: Path, real: RealWorld
) -> None:
    """KIP-684: ssl.client.auth without the listener's prefix applies only to SSL."""
    config = configured(tmp_path, ssl_client_auth="required")
    tls = NodeTls(real.world, config)
    assert tls.of_listener("SSL", "SSL").context.verify_mode.name == "CERT_REQUIRED"
    assert tls.of_listener("SASL_SSL", "SASL_SSL").context.verify_mode.name == "CERT_NONE"
    config.set_dynamic({"listener.name.sasl_ssl.ssl.client.auth": "requested"}, {})
    assert tls.of_listener("SASL_SSL", "SASL_SSL").context.verify_mode.name == "CERT_OPTIONAL"
    tls.stop()


async def test_a_file_that_cannot_be_used_is_reported_once_and_the_next_one_is_taken(
    tmp_path: Path, real: RealWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_tls, "LOOK_MS", 5)
    caplog.set_level(logging.INFO)
    tls = NodeTls(real.world, configured(tmp_path))
    listener = tls.of_listener("SSL", "SSL")
    before = listener.context
    (tmp_path / "node.pem").write_text("half of a file")
    await until(lambda: "stay as they are" in caplog.text)
    await asyncio.sleep(0.05)
    assert caplog.text.count("stay as they are") == 1
    assert listener.context is before
    (tmp_path / "node.pem").unlink()
    await until(lambda: "there is no such file" in caplog.text)
    renewed = AUTHORITY.issue("node", ["localhost", "also.example"], days=3)
    (tmp_path / "node.pem").write_text(renewed.key_pem + renewed.chain_pem)
    await until(lambda: listener.context is not before)
    assert "have been replaced: their files have changed" in caplog.text
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "(CN=node) is valid until" in warning.getMessage()
    tls.stop()


class Locked(OsFiles):
    """Files that become unreadable without a change of their own: the permissions of their directory are wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.is_locked = False

    def read(self, path: str) -> bytes | None:
        if self.is_locked:
            raise failure_of(path, OSError(errno.EACCES, os.strerror(errno.EACCES), path))
        return super().read(path)


@pytest.mark.parametrize("name", ["node.pem", "ca.pem"])
async def test_files_that_cannot_be_read_are_tried_until_they_can_be_said_at_intervals_and_then_taken(
    name: str, tmp_path: Path, real: RealWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, files = ManualClock(), Locked()
    tls = NodeTls(replace(real.world, clock=clock, files=files), configured(tmp_path))
    listener, peers = tls.of_listener("SSL", "SSL"), tls.to_peers("SSL")
    before = listener.context, peers.context
    files.is_locked = True
    renewed = AUTHORITY.issue("node", ["localhost"])
    contents = {"node.pem": renewed.key_pem + renewed.chain_pem, "ca.pem": AUTHORITY.pem + AUTHORITY.pem}
    (tmp_path / name).write_text(contents[name])
    clock.advance(node_tls.REPEAT_MS - 60_000)
    assert (caplog.text.count("stay as they are"), caplog.text.count("Permission denied")) == (1, 1)
    assert "listener SSL, connections to SSL" in caplog.text
    clock.advance(120_000)
    assert caplog.text.count("stay as they are") == 2
    files.is_locked = False
    clock.advance(node_tls.RETRY_MS + node_tls.LOOK_MS)
    assert "The certificates of listener SSL, connections to SSL have been replaced" in caplog.text
    assert listener.context is not before[0] and peers.context is not before[1]
    taken = listener.context
    clock.advance(node_tls.REPEAT_MS)
    assert listener.context is taken, "what was taken is not made again"
    tls.stop()


async def test_rights_that_are_mended_are_noticed_at_once(tmp_path: Path, real: RealWorld) -> None:
    clock = ManualClock()
    tls = NodeTls(replace(real.world, clock=clock), configured(tmp_path))
    listener = tls.of_listener("SSL", "SSL")
    before = listener.context
    written = (tmp_path / "node.pem").stat()
    await asyncio.sleep(0.02)  # a tick of the kernel's clock
    (tmp_path / "node.pem").chmod(0o600)
    assert (tmp_path / "node.pem").stat().st_mtime_ns == written.st_mtime_ns
    clock.advance(node_tls.LOOK_MS)
    assert listener.context is not before
    tls.stop()


@pytest.mark.parametrize("allowed", [False, True])
async def test_another_name_is_taken_only_where_that_is_allowed(
    allowed: bool, tmp_path: Path, real: RealWorld, caplog: pytest.LogCaptureFixture
) -> None:
    allow = {"ssl_allow_dn_changes": "true", "ssl_allow_san_changes": "true"} if allowed else {}
    config = configured(tmp_path, **allow)
    tls = NodeTls(real.world, config)
    listener = tls.of_listener("SSL", "SSL")
    before = listener.context
    other = AUTHORITY.issue("other", ["elsewhere"])
    (tmp_path / "other.pem").write_text(other.key_pem + other.chain_pem)
    config.set_dynamic({"listener.name.ssl.ssl.keystore.location": str(tmp_path / "other.pem")}, {})
    assert (listener.context is not before) is allowed
    assert ("DistinguishedName does not match: existing=CN=node, new=CN=other" in caplog.text) is not allowed
    tls.stop()


async def test_for_how_long_the_certificates_are_valid_is_a_metric(tmp_path: Path, real: RealWorld) -> None:
    tls = NodeTls(real.world, configured(tmp_path))
    tls.of_listener("SSL", "SSL")
    [sample] = tls.certificate_samples()
    left_s = NODE.certificate.not_valid_after_utc.timestamp() - real.world.clock.wall_ms() / 1_000
    assert sample.labels == {"of": "listener SSL"}
    assert abs(sample.value - left_s) < 60
    tls.stop()
