"""From properties to OpenSSL's behaviour: versions, cipher suites, certificates of clients, trust."""

from __future__ import annotations

import ssl

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla.local.certificates import Authority
from ottla.server.config.key import ConfigError
from ottla.server.tls.contexts import check_each_other, client_context, openssl_names, server_context
from tests.server.tls.store_files import properties

AUTHORITY = Authority.create("test CA")
NODE = AUTHORITY.issue("node", ["localhost"])
KEYS = {
    "ssl_keystore_type": "PEM",
    "ssl_keystore_key": NODE.key_pem,
    "ssl_keystore_certificate_chain": NODE.chain_pem,
    "ssl_truststore_type": "PEM",
    "ssl_truststore_certificates": AUTHORITY.pem,
}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """The server's end of a connection in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server, False, host)]
    left = list(ends)
    while left:
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                continue
    return ends[0]


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        ({}, "TLSv1.3"),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl_enabled_protocols": "TLSv1.2,TLSv1.1,TLSv1"}, "TLSv1.2"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1.3"),
        ({"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}, "TLSv1.2"),
        ({"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384"}, "TLSv1.3"),
    ],
)
def test_the_version_is_the_highest_that_properties_and_suites_leave(texts: dict[str, str], version: str) -> None:
    server = server_context(properties(**KEYS, **texts), "none").context
    end = handshake(server, client_context(properties(**KEYS)).context)
    assert end.version() == version


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"ssl_enabled_protocols": "TLSv1,SSLv3"}, "none of them is secure"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "TLS_AES_256_GCM_SHA384 cannot be left out"),
        ({"ssl_cipher_suites": "TLS_NO_SUCH_SUITE"}, "OpenSSL has none"),
        ({"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384", "ssl_enabled_protocols": "TLSv1.2"}, "none of them is of a"),
    ],
)
def test_what_would_not_be_served_is_refused(texts: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        server_context(properties(**KEYS, **texts), "none")


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ({}, "there is no such file"),
        ({"t": b"garbage"}, "cannot be read with ssl.truststore.password"),
        ({"t": AUTHORITY.pkcs12("other")}, "cannot be read with ssl.truststore.password"),
    ],
)
def test_a_trust_store_that_cannot_be_read_is_refused_where_no_client_certificate_is_requested(
    store: dict[str, bytes], why: str
) -> None:
    keys = {name: text for name, text in KEYS.items() if "truststore" not in name}
    trust = {"ssl_truststore_type": "PKCS12", "ssl_truststore_location": "t", "ssl_truststore_password": "secret"}
    with pytest.raises(ConfigError, match=why) as caught:
        server_context(properties(store, **keys, **trust), "none")
    assert caught.value.name == "ssl.truststore.location" and caught.value.what_to_try


def test_suites_have_opensslss_names() -> None:
    java = [
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES128-SHA",
    ]  # fmt: skip
    known = {cipher["name"] for cipher in any_cipher().get_ciphers()}
    names = openssl_names(java)
    assert names == [
        "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA256", "AES128-SHA", "DHE-RSA-AES256-GCM-SHA384",
        "ECDHE-RSA-CHACHA20-POLY1305", "AES256-GCM-SHA384", "ECDHE-RSA-AES128-SHA",
    ]  # fmt: skip
    assert set(names) <= known


def any_cipher() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def test_a_listener_without_a_key_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="an SSL listener needs a key store") as caught:
        server_context(properties(), "none")
    assert "ssl.keystore.location" in caught.value.what_to_try


@pytest.mark.parametrize(
    ("wanted", "without", "seen"), [("none", True, False), ("requested", True, True), ("required", False, True)]
)
def test_client_certificates_are_asked_for_as_the_property_says(wanted: str, without: bool, seen: bool) -> None:
    server = server_context(properties(**KEYS), wanted).context
    bare = client_context(properties(ssl_truststore_type="PEM", ssl_truststore_certificates=AUTHORITY.pem)).context
    if without:
        assert handshake(server, bare).getpeercert(True) is None
    else:
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            handshake(server, bare)
    with_certificate = client_context(properties(**KEYS)).context
    assert (handshake(server, with_certificate).getpeercert(True) is not None) is seen


def test_the_servers_name_is_checked_unless_the_algorithm_is_empty() -> None:
    server = server_context(properties(**KEYS), "none").context
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client_context(properties(**KEYS)).context, "elsewhere")
    unchecked = client_context(properties(**KEYS, ssl_endpoint_identification_algorithm="")).context
    assert handshake(server, unchecked, "elsewhere").version() == "TLSv1.3"
    with pytest.raises(ConfigError, match="only https is known"):
        client_context(properties(**KEYS, ssl_endpoint_identification_algorithm="LDAPS"))


def test_a_certificate_in_the_trust_store_is_an_anchor_also_if_another_signed_it() -> None:
    """Java's trust managers accept it, too; OpenSSL itself requires the root."""
    trusts_leaf = client_context(
        properties(ssl_truststore_type="PEM", ssl_truststore_certificates=NODE.chain_pem.partition("-----END")[0]
                   + "-----END CERTIFICATE-----")
    ).context  # fmt: skip
    assert handshake(server_context(properties(**KEYS), "none").context, trusts_leaf).version() == "TLSv1.3"


def test_nodes_that_would_refuse_each_other_are_known_before_they_meet() -> None:
    server = server_context(properties(**KEYS), "required").context
    assert check_each_other(server, client_context(properties(**KEYS)).context) is None
    other = Authority.create("other")
    trust_other = KEYS | {"ssl_truststore_certificates": other.pem}
    why = check_each_other(server, client_context(properties(**trust_other)).context)
    assert why is not None and "not accepted" in why


def test_a_key_that_openssl_refuses_is_named() -> None:
    weak = AUTHORITY.issue("node", key=rsa.generate_private_key(65537, 1024))
    keys = KEYS | {"ssl_keystore_key": weak.key_pem, "ssl_keystore_certificate_chain": weak.chain_pem}
    with pytest.raises(ConfigError, match="OpenSSL refuses the key store: ee key too small") as caught:
        server_context(properties(**keys), "none")
    assert caught.value.name == "ssl.keystore.key"
