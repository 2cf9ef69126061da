"""Key stores and trust stores in each form, and the message about unusable ones: property, file, remedy, and no secret."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12

from ottla.local.certificates import Authority
from ottla.server.config.key import ConfigError
from ottla.server.tls.stores import key_store, pem_blocks, store_files, trusted_certificates
from tests.needs import skip_because
from tests.server.tls.store_files import properties

AUTHORITY = Authority.create("test CA")
NODE = AUTHORITY.issue("node", ["localhost"])
OTHER = AUTHORITY.issue("other", ["localhost"])
PASSWORD = "not to be shown"
ENCRYPTED = NODE.encrypted_key_pem(PASSWORD)
ONE_LINE_KEY = NODE.key_pem.replace("\n", " ").strip()


@pytest.mark.parametrize(
    "given",
    [
        properties(
            ssl_keystore_type="PEM", ssl_keystore_key=NODE.key_pem, ssl_keystore_certificate_chain=NODE.chain_pem
        ),
        properties(
            ssl_keystore_type="PEM", ssl_keystore_key=ONE_LINE_KEY, ssl_keystore_certificate_chain=NODE.chain_pem
        ),
        properties(
            ssl_keystore_type="PEM",
            ssl_keystore_key=ENCRYPTED,
            ssl_key_password=PASSWORD,
            ssl_keystore_certificate_chain=NODE.chain_pem,
        ),
        properties({"k": NODE.key_pem + NODE.chain_pem}, ssl_keystore_type="PEM", ssl_keystore_location="k"),
        properties(
            {"k": "Bag Attributes\n" + NODE.chain_pem + ENCRYPTED},
            ssl_keystore_type="PEM",
            ssl_keystore_location="k",
            ssl_key_password=PASSWORD,
        ),
        properties(
            {"k": NODE.pkcs12(PASSWORD)},
            ssl_keystore_type="PKCS12",
            ssl_keystore_location="k",
            ssl_keystore_password=PASSWORD,
        ),
        # keytool writes PKCS12 since JDK 9, whatever the file is called.
        properties({"k.jks": NODE.pkcs12(PASSWORD)}, ssl_keystore_location="k.jks", ssl_keystore_password=PASSWORD),
    ],
    ids=["inline", "inline-one-line", "inline-encrypted", "file", "file-encrypted", "pkcs12", "pkcs12-named-jks"],
)
def test_each_form_of_a_key_store_gives_the_key_and_its_chain(given) -> None:
    store = key_store(given)
    assert store is not None
    assert [each.serial_number for each in store.chain] == [
        NODE.certificate.serial_number,
        AUTHORITY.certificate.serial_number,
    ]
    assert [label for label, _ in pem_blocks(store.pem.decode())] == ["PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"]


@pytest.mark.parametrize(
    ("files", "texts", "name", "why"),
    [
        ({}, {"ssl_keystore_type": "PEM", "ssl_keystore_location": "/gone.pem"}, "location", "/gone.pem.*no such file"),
        (
            {"k": NODE.pkcs12("x")},
            {"ssl_keystore_location": "k"},
            "location",
            "k .*key store password is not specified",
        ),
        (
            {"k": NODE.pkcs12("x")},
            {"ssl_keystore_location": "k", "ssl_keystore_password": PASSWORD},
            "location",
            r"k for.*cannot be read with ssl.keystore.password",
        ),
        (
            {"k.jks": b"\xfe\xed\xfe\xed\0\0\0\2"},
            {"ssl_keystore_location": "k.jks", "ssl_keystore_password": PASSWORD},
            "location",
            "k.jks.*a JKS store, which only Java reads",
        ),
        (
            {"k": NODE.key_pem + NODE.chain_pem},
            {"ssl_keystore_location": "k", "ssl_keystore_password": PASSWORD},
            "location",
            "it is PEM, but ssl.keystore.type is not",
        ),
        (
            {"k": NODE.key_pem},
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "k"},
            "location",
            "one certificate",
        ),
        ({"k": NODE.chain_pem}, {"ssl_keystore_type": "PEM", "ssl_keystore_location": "k"}, "location", "private key"),
        (
            {"k": OTHER.key_pem + NODE.chain_pem},
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "k"},
            "location",
            "does not belong to the first certificate",
        ),
        (
            {"k": ENCRYPTED + NODE.chain_pem},
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "k"},
            "location",
            "the private key is encrypted",
        ),
        (
            {"k": ENCRYPTED + NODE.chain_pem},
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "k", "ssl_key_password": "wrong"},
            "location",
            "cannot be decrypted with ssl.key.password",
        ),
        (
            {},
            {
                "ssl_keystore_type": "PEM",
                "ssl_keystore_key": ENCRYPTED,
                "ssl_keystore_certificate_chain": NODE.chain_pem,
            },
            "key",
            r"\[hidden\].*the private key is encrypted",
        ),
        ({}, {"ssl_keystore_key": NODE.key_pem}, "key", "only for PEM, but key store type is JKS"),
        ({}, {"ssl_keystore_type": "PEM", "ssl_keystore_key": NODE.key_pem}, "key", "chain is not specified"),
        ({}, {"ssl_keystore_certificate_chain": NODE.chain_pem}, "certificate.chain", "private key is not specified"),
        ({}, {"ssl_keystore_password": PASSWORD}, "password", "SSL key store is not specified"),
        (
            {"k": b""},
            {"ssl_keystore_type": "PEM", "ssl_keystore_location": "k", "ssl_keystore_password": PASSWORD},
            "password",
            "only key password may be specified",
        ),
    ],
)
def test_what_is_wrong_with_a_key_store_is_said_without_the_secret(files, texts, name, why) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        key_store(properties(files, **texts))
    assert caught.value.name == f"ssl.keystore.{name}"
    assert caught.value.what_to_try
    said = f"{caught.value} {caught.value.what_to_try}"
    assert PASSWORD not in said and "BEGIN PRIVATE KEY-" not in said and NODE.key_pem[40:80] not in said


def test_the_refusal_of_a_jks_store_has_the_command_that_converts_it(tmp_path: Path) -> None:
    jks, converted = tmp_path / "node.jks", tmp_path / "node.p12"
    skip_because(None if shutil.which("keytool") else "needs Java's keytool")
    secrets = ["-storepass", "secret", "-keypass", "secret"]
    kind = ["-keyalg", "EC", "-dname", "CN=node", "-storetype", "JKS", "-keystore", str(jks)]
    subprocess.run(["keytool", "-genkeypair", "-alias", "k", *kind, *secrets], check=True, capture_output=True)
    texts = {"ssl_keystore_location": str(jks), "ssl_keystore_password": "secret"}
    with pytest.raises(ConfigError) as caught:
        key_store(properties({str(jks): jks.read_bytes()}, **texts))
    command = caught.value.what_to_try.removeprefix("convert it: ").partition(", then")[0]
    subprocess.run(
        [*command.split(), "-srcstorepass", "secret", "-deststorepass", "secret"], check=True, capture_output=True
    )
    texts = {"ssl_keystore_location": str(converted), "ssl_keystore_password": "secret"}
    store = key_store(properties({str(converted): converted.read_bytes()}, **texts, ssl_keystore_type="PKCS12"))
    assert store is not None and store.chain[0].subject.rfc4514_string() == "CN=node"


def pkcs12_trust(password: str | None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(None, None, None, [AUTHORITY.certificate], encryption)


@pytest.mark.parametrize(
    "given",
    [
        properties(ssl_truststore_type="PEM", ssl_truststore_certificates=AUTHORITY.pem),
        properties({"t": AUTHORITY.pem}, ssl_truststore_type="PEM", ssl_truststore_location="t"),
        properties(
            {"t": pkcs12_trust(PASSWORD)},
            ssl_truststore_type="PKCS12",
            ssl_truststore_location="t",
            ssl_truststore_password=PASSWORD,
        ),
        properties({"t": pkcs12_trust(None)}, ssl_truststore_type="PKCS12", ssl_truststore_location="t"),
    ],
    ids=["inline", "file", "pkcs12", "pkcs12-open"],
)
def test_each_form_of_a_trust_store_gives_its_certificates(given) -> None:
    assert trusted_certificates(given) == [AUTHORITY.certificate]


@pytest.mark.parametrize(
    ("files", "texts", "why"),
    [
        ({}, {"ssl_truststore_type": "PEM", "ssl_truststore_location": "/gone"}, "no such file"),
        ({"t": "nothing"}, {"ssl_truststore_type": "PEM", "ssl_truststore_location": "t"}, "one certificate expected"),
        (
            {"t": pkcs12_trust("x")},
            {"ssl_truststore_location": "t", "ssl_truststore_password": PASSWORD},
            "cannot be read",
        ),
        ({"t": b"\xfe\xed\xfe\xed"}, {"ssl_truststore_location": "t"}, "JKS store"),
        ({}, {"ssl_truststore_password": PASSWORD}, "SSL trust store is not specified"),
        ({}, {"ssl_truststore_certificates": AUTHORITY.pem}, "only for PEM"),
        (
            {},
            {
                "ssl_truststore_type": "PEM",
                "ssl_truststore_certificates": AUTHORITY.pem,
                "ssl_truststore_password": PASSWORD,
            },
            "cannot be specified for PEM",
        ),
    ],
)
def test_what_is_wrong_with_a_trust_store_is_said(files, texts, why) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        trusted_certificates(properties(files, **texts))
    assert caught.value.name.startswith("ssl.truststore.") and caught.value.what_to_try
    assert PASSWORD not in str(caught.value)


def test_no_store_is_none() -> None:
    assert key_store(properties()) is None
    assert trusted_certificates(properties()) is None
    assert store_files(properties(ssl_keystore_location="/k", ssl_truststore_location="/t")) == ["/k", "/t"]
