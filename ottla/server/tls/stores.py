"""The ssl.* properties of one listener, or of a client, and the key stores and trust stores that they name.

Stores may be PEM (as text or file) or PKCS12. JKS, which only Java can read, is rejected with the command that converts it.

Everything is checked here before OpenSSL reads it, because OpenSSL's errors name neither the property nor the file.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from ottla.server.config.broker import is_secret
from ottla.server.config.key import HIDDEN, ConfigError, Values
from ottla.storage.errors import StorageFailure

#: Returns the content of a file, or None if it does not exist.
Read = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class TlsProperties:
    """The properties of one side, with the names under which they were set.

    `own` has those with the listener's prefix, which win.
    """

    values: Values
    read: Read
    own: Values = field(default_factory=dict)
    prefix: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.own[name] if name in self.own else self.values[name]

    def name_of(self, name: str) -> str:
        """Return the name with which the operator has set the property, or can set it."""
        return self.prefix + name if name in self.own else name

    def error(self, name: str, why: str, remedy: str) -> ConfigError:
        """Return the error of a property. Its message shows the value, unless that is secret."""
        return ConfigError(self.name_of(name), HIDDEN if is_secret(name) else self[name], why, remedy)


#: Line breaks may be missing, or may be blanks: a properties file joins the lines of a value.
PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----")
JAVA_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS and JCEKS
PRIVATE_KEY = "PRIVATE KEY"
#: The form in which the public keys of certificate and private key are compared.
PUBLIC = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificates. The owner's certificate comes first."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    @property
    def pem(self) -> bytes:
        """Return the PEM text for OpenSSL, with the key unencrypted."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.chain)


def key_store(properties: TlsProperties) -> KeyStore | None:
    """Read the key store.

    Return None if there is none. Raises ConfigError, also for combinations of properties that Kafka rejects.
    """
    key, chain = properties["ssl.keystore.key"], properties["ssl.keystore.certificate.chain"]
    path, password = properties["ssl.keystore.location"], properties["ssl.keystore.password"]
    is_pem = properties["ssl.keystore.type"].upper() == "PEM"
    if key is None and chain is not None:
        why = "SSL certificate chain is specified, but private key is not specified"
        raise properties.error("ssl.keystore.certificate.chain", why, "set ssl.keystore.key")
    if key is not None:
        if not is_pem:
            kind = properties["ssl.keystore.type"]
            why = f"SSL private key can be specified only for PEM, but key store type is {kind}"
            raise properties.error("ssl.keystore.key", why, "set ssl.keystore.type=PEM")
        if chain is None:
            why = "SSL private key is specified, but certificate chain is not specified"
            raise properties.error("ssl.keystore.key", why, "set ssl.keystore.certificate.chain")
        if path is not None:
            why = "Both SSL key store location and separate private key are specified"
            raise properties.error("ssl.keystore.location", why, "leave one of them out")
    if is_pem and password is not None:
        why = "SSL key store password cannot be specified with PEM format, only key password may be specified"
        raise properties.error("ssl.keystore.password", why, "use ssl.key.password")
    if key is not None:
        return _pem_key_store(properties, key, chain)
    if path is None:
        if password is not None:
            why = "SSL key store is not specified, but key store password is specified"
            raise properties.error("ssl.keystore.password", why, "set ssl.keystore.location")
        return None
    data = _read(properties, "ssl.keystore.location")
    if is_pem:
        text = data.decode("ascii", errors="replace")
        return _pem_key_store(properties, text, text, "ssl.keystore.location")
    if password is None:
        why = "SSL key store is specified, but key store password is not specified"
        raise properties.error("ssl.keystore.location", why, "set ssl.keystore.password")
    return _pkcs12_key_store(properties, data, password)


def trusted_certificates(properties: TlsProperties) -> list[x509.Certificate] | None:
    """Read the trust store. Return None if there is none. Raises ConfigError."""
    text = properties["ssl.truststore.certificates"]
    path, password = properties["ssl.truststore.location"], properties["ssl.truststore.password"]
    is_pem = properties["ssl.truststore.type"].upper() == "PEM"
    if text is not None:
        if not is_pem:
            kind = properties["ssl.truststore.type"]
            why = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}"
            raise properties.error("ssl.truststore.certificates", why, "set ssl.truststore.type=PEM")
        if path is not None:
            why = "Both SSL trust store location and separate trust certificates are specified"
            raise properties.error("ssl.truststore.location", why, "leave one of them out")
    if is_pem and password is not None:
        why = "SSL trust store password cannot be specified for PEM format"
        raise properties.error("ssl.truststore.password", why, "leave it out")
    if text is not None:
        return _certificates(properties, "ssl.truststore.certificates", text)
    if path is None:
        if password is not None:
            why = "SSL trust store is not specified, but trust store password is specified"
            raise properties.error("ssl.truststore.password", why, "set ssl.truststore.location")
        return None
    data = _read(properties, "ssl.truststore.location")
    if is_pem:
        return _certificates(properties, "ssl.truststore.location", data.decode("ascii", errors="replace"))
    _reject_other_forms(properties, "ssl.truststore", data)
    store = _load_pkcs12(properties, "ssl.truststore", data, password)
    entries = [entry.certificate for entry in [store.cert, *store.additional_certs] if entry is not None]
    if not entries:
        remedy = "import the certificate of the authority with keytool -importcert"
        raise properties.error("ssl.truststore.location", "the trust store has no certificate", remedy)
    return entries


def store_files(properties: TlsProperties) -> list[str]:
    """Return the paths of the stores' files."""
    paths = (properties["ssl.keystore.location"], properties["ssl.truststore.location"])
    return [path for path in paths if path is not None]


def _read(properties: TlsProperties, name: str) -> bytes:
    path: str = properties[name]
    try:
        data = properties.read(path)
    except (OSError, StorageFailure) as error:
        raise properties.error(name, f"the file cannot be read: {error}", "check its rights") from None
    if data is None:
        raise properties.error(name, "there is no such file", "check the path")
    return data


# -- PEM -----------------------------------------------------------------------------------------------------------------


def pem_blocks(text: str) -> list[tuple[str, bytes]]:
    """Return the entries of a PEM text as label and DER; text between them is skipped. Raises ValueError for invalid base64."""
    try:
        return [(match[1], b64decode("".join(match[2].split()), validate=True)) for match in PEM_BLOCK.finditer(text)]
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _pem_key_store(properties: TlsProperties, key_text: str, chain_text: str, file: str | None = None) -> KeyStore:
    """Return the key store from a PEM file or text.

    `file` is the property that names the file, unless the properties themselves have the texts.
    """
    key_name, chain_name = file or "ssl.keystore.key", file or "ssl.keystore.certificate.chain"
    try:
        keys = [der for label, der in pem_blocks(key_text) if label.endswith(PRIVATE_KEY)]
    except ValueError:
        keys = []
    if len(keys) != 1:
        why = f"Expected one private key, but found {len(keys)}"
        remedy = "it must have one entry BEGIN PRIVATE KEY or BEGIN ENCRYPTED PRIVATE KEY (PKCS #8)"
        raise properties.error(key_name, why, remedy)
    chain = _certificates(properties, chain_name, chain_text)
    key = _private_key(properties, key_name, keys[0])
    return _matching(properties, chain_name, key, chain)


def _private_key(properties: TlsProperties, name: str, der: bytes) -> PrivateKeyTypes:
    password = properties["ssl.key.password"]
    try:
        return load_der_private_key(der, None if password is None else password.encode())
    except TypeError:
        if password is None:
            raise properties.error(name, "the private key is encrypted", "set ssl.key.password") from None
        why = "the private key is not encrypted, but ssl.key.password is set"
        raise properties.error(name, why, "leave ssl.key.password out, or encrypt the key") from None
    except ValueError:
        if password is None:
            remedy = "it must be PKCS #8: openssl pkcs8 -topk8"
            raise properties.error(name, "the private key cannot be read", remedy) from None
        why = "the private key cannot be decrypted with ssl.key.password"
        raise properties.error(name, why, "check ssl.key.password: openssl pkey -in FILE -noout asks for it") from None
    except UnsupportedAlgorithm as unsupported:
        raise properties.error(name, f"the private key cannot be used: {unsupported}", "use an RSA or EC key") from None


def _certificates(properties: TlsProperties, name: str, text: str) -> list[x509.Certificate]:
    try:
        found = [
            x509.load_der_x509_certificate(der) for label, der in pem_blocks(text) if label.endswith("CERTIFICATE")
        ]
    except ValueError as wrong:
        why = f"a certificate cannot be read: {wrong}"
        raise properties.error(name, why, "check it with openssl x509 -text") from None
    if not found:
        why = "At least one certificate expected, but none found"
        remedy = "it must have an entry BEGIN CERTIFICATE for each certificate, the node's own first"
        raise properties.error(name, why, remedy)
    return found


# -- PKCS12 --------------------------------------------------------------------------------------------------------------


def _pkcs12_key_store(properties: TlsProperties, data: bytes, password: str) -> KeyStore:
    _reject_other_forms(properties, "ssl.keystore", data)
    store = _load_pkcs12(properties, "ssl.keystore", data, password)
    if store.key is None or store.cert is None:
        why = "the key store has no private key with a certificate"
        raise properties.error("ssl.keystore.location", why, "see keytool -list: it needs a PrivateKeyEntry")
    others = [entry.certificate for entry in store.additional_certs]
    return _matching(properties, "ssl.keystore.location", store.key, [store.cert.certificate, *others])


def _load_pkcs12(
    properties: TlsProperties, kind: str, data: bytes, password: str | None
) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm):
        why = f"it cannot be read with {kind}.password as PKCS12" if password else "it is no PKCS12 without a password"
        remedy = f"check {kind}.password and {kind}.type: keytool -list -keystore FILE"
        raise properties.error(f"{kind}.location", why, remedy) from None


def _reject_other_forms(properties: TlsProperties, kind: str, data: bytes) -> None:
    """Accept PKCS12 under either type: since JDK 9 Java's keytool writes PKCS12, also to files named .jks, and Java reads both."""
    path = properties[f"{kind}.location"]
    if data.startswith(JAVA_MAGICS):
        target = re.sub(r"\.(jks|jceks|keystore|truststore)$", "", path) + ".p12"
        remedy = (
            f"convert it: keytool -importkeystore -srckeystore {path} -destkeystore {target} -deststoretype PKCS12, "
            f"then set {kind}.location={target} and {kind}.type=PKCS12"
        )
        raise properties.error(f"{kind}.location", "it is a JKS store, which only Java reads", remedy)
    if b"-----BEGIN " in data:
        raise properties.error(f"{kind}.location", f"it is PEM, but {kind}.type is not", f"set {kind}.type=PEM")
    if properties[f"{kind}.type"].upper() not in ("PKCS12", "JKS"):
        raise properties.error(f"{kind}.type", "there is no such type of store", "one of PEM, PKCS12")


def _matching(
    properties: TlsProperties, name: str, key: PrivateKeyTypes, chain: Sequence[x509.Certificate]
) -> KeyStore:
    if key.public_key().public_bytes(*PUBLIC) != chain[0].public_key().public_bytes(*PUBLIC):
        why = "the private key does not belong to the first certificate"
        raise properties.error(name, why, "the node's own certificate comes first, those of its authorities after it")
    return KeyStore(key, tuple(chain))
