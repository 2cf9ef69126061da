"""A node whose TLS settings are wrong does not start, and its operator reads the property, the file and the remedy, but no
secret.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.local.certificates import Authority
from tests.rules.sources import ROOT

SECRET = "secret-of-the-key"
AUTHORITY = Authority.create("test CA")
NODE = AUTHORITY.issue("node", ["localhost"])


def started(tmp_path: Path, **properties: str) -> subprocess.CompletedProcess[str]:
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "security.inter.broker.protocol": "SSL",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
    } | {name.replace("_", "."): text for name, text in properties.items()}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    command = [sys.executable, "-m", "ottla", "start", str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("content", "properties", "said"),
    [
        (None, {}, ["ssl.keystore.location", "an SSL listener needs a key store", "try: set ssl.keystore.location"]),
        (None, {"ssl_keystore_location": "KEYS"}, ["KEYS", "there is no such file"]),
        (NODE.chain_pem, {"ssl_keystore_location": "KEYS"}, ["KEYS", "Expected one private key, but found 0"]),
        (
            NODE.encrypted_key_pem(SECRET) + NODE.chain_pem,
            {"ssl_keystore_location": "KEYS"},
            ["KEYS", "the private key is encrypted", "try: set ssl.key.password"],
        ),
        (
            NODE.encrypted_key_pem("other") + NODE.chain_pem,
            {"ssl_keystore_location": "KEYS", "ssl_key_password": SECRET},
            ["KEYS", "the private key cannot be decrypted with ssl.key.password"],
        ),
        (
            NODE.key_pem + NODE.chain_pem,
            {"ssl_keystore_location": "KEYS", "ssl_truststore_location": "OTHER"},
            ["OTHER", "nodes with these key and trust stores would refuse each other"],
        ),
        (
            NODE.key_pem + NODE.chain_pem,
            {
                "ssl_keystore_location": "KEYS",
                "ssl_truststore_location": "CA",
                "ssl_engine_factory_class": "com.acme.X",
            },
            ["ssl.engine.factory.class=com.acme.X", "Java classes that make TLS engines are not loaded"],
        ),
        (
            NODE.key_pem + NODE.chain_pem,
            {
                "ssl_keystore_location": "KEYS",
                "ssl_truststore_location": "CA",
                "ssl_principal_mapping_rules": "RULE:^CN=(.*$/$1/",
            },
            ["ssl.principal.mapping.rules", "Invalid pattern"],
        ),
        (
            NODE.key_pem + NODE.chain_pem,
            {
                "security_inter_broker_protocol": "PLAINTEXT",
                "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
                "ssl_keystore_location": "KEYS",
                "ssl_truststore_location": "P12",
                "ssl_truststore_type": "PKCS12",
                "ssl_truststore_password": SECRET,
            },
            ["ssl.truststore.location", "P12", "cannot be read with ssl.truststore.password", "try: check ssl.trust"],
        ),
    ],
    ids=["none", "missing", "no-key", "no-password", "wrong-password", "not-trusted", "engine", "rules", "trust"],
)
def test_a_node_with_a_key_store_that_cannot_be_used_does_not_start(
    content: str | None, properties: dict[str, str], said: list[str], tmp_path: Path
) -> None:
    names = {"KEYS": "node.pem", "CA": "ca.pem", "OTHER": "other.pem", "P12": "trust.p12"}
    files = {name: tmp_path / file for name, file in names.items()}
    files["P12"].write_bytes(AUTHORITY.pkcs12("other"))
    files["CA"].write_text(AUTHORITY.pem)
    files["OTHER"].write_text(Authority.create("other").pem)
    if content is not None:
        files["KEYS"].write_text(content)
    ended = started(tmp_path, **{name: str(files.get(text, text)) for name, text in properties.items()})
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    for text in said:
        assert str(files.get(text, text)) in ended.stderr
    assert SECRET not in ended.stdout + ended.stderr


def test_a_sasl_listener_whose_mechanism_is_not_served_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "node.pem").write_text(NODE.key_pem + NODE.chain_pem)
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    ended = started(
        tmp_path,
        listeners="SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        ssl_keystore_location=str(tmp_path / "node.pem"),
        ssl_truststore_location=str(tmp_path / "ca.pem"),
        sasl_enabled_mechanisms="DIGEST-MD5",
    )
    assert ended.returncode == 1 and "the SASL mechanism DIGEST-MD5 is not served" in ended.stderr
