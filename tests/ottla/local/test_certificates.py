"""Certificates of `ottla dev --secure` and of the test fixtures, as clients check them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.local.certificates import Authority, _builder, _usage


def without_key_identifiers() -> Authority:
    """Return an authority as Ottla made it in former releases, and as other tools make it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=Old")
    builder = _builder(name, name, key, 10)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return Authority(
        key, builder.add_extension(_usage(signs_certificates=True), critical=True).sign(key, hashes.SHA256())
    )


def shake_hands(authority: Authority, node: ssl.SSLContext) -> None:
    client = ssl.create_default_context(cadata=authority.pem)
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    to_node, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_node, server_hostname="localhost"),
        node.wrap_bio(to_node, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not sides


def context_of(authority: Authority, directory: Path) -> ssl.SSLContext:
    issued = authority.issue("node-1", ["localhost"])
    path = directory / "node.pem"
    path.write_text(issued.key_pem + issued.chain_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def test_a_client_that_checks_strictly_as_python_3_13_does_trusts_a_node(tmp_path: Path) -> None:
    authority = Authority.create("Ottla development CA")
    shake_hands(authority, context_of(authority, tmp_path))


def test_an_authority_without_a_key_identifier_signs_what_names_its_key_and_strict_clients_refuse_the_authority(
    tmp_path: Path,
) -> None:
    authority = without_key_identifiers()
    issued = authority.issue("node-1", ["localhost"]).certificate
    named = issued.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())
    assert named.key_identifier == own.key_identifier
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing Subject Key Identifier"):
        shake_hands(authority, context_of(authority, tmp_path))
