"""Certificates for development and tests: a certificate authority, and the certificates that it signs for nodes and clients.

    authority = Authority.create("Ottla development CA")
    node = authority.issue("node-1", ["localhost", "127.0.0.1"])
    node.chain_pem, node.key_pem, node.pkcs12("secret"), authority.pem

The keys are on the curve P-256: a handshake with one costs a tenth of one with RSA-2048.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
#: The clocks of machines differ, so a certificate is valid from a time in the past on.
BEFORE = datetime.timedelta(hours=1)
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key with its certificate, and the certificate of the signer."""

    key: PrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def chain_pem(self) -> str:
        return pem(self.certificate) + pem(self.issuer)

    @property
    def key_pem(self) -> str:
        return key_pem(self.key)

    def encrypted_key_pem(self, password: str) -> str:
        return key_pem(self.key, password)

    def pkcs12(self, password: str) -> bytes:
        """Return a key store of the type PKCS12."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"kafka", self.key, self.certificate, [self.issuer], encryption)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority. A process with its key can pose as any node and any client."""

    key: PrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, certificate_pem: bytes, key_pem: bytes) -> Authority:
        """Read an authority from its files. Raise ValueError if one of the two is damaged."""
        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError("the key is neither RSA nor on an elliptic curve")
        return cls(key, x509.load_pem_x509_certificate(certificate_pem))

    @property
    def pem(self) -> str:
        return pem(self.certificate)

    def pkcs12(self, password: str) -> bytes:
        """Return a trust store of the type PKCS12."""
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(None, None, None, [self.certificate], encryption)

    def issue(
        self,
        name: str | x509.Name,
        hosts: Sequence[str] = (),
        *,
        days: float = CERTIFICATE_DAYS,
        key: PrivateKey | None = None,
    ) -> Issued:
        """Return a certificate for a node (with the names and addresses by which it is reached) or a client.

        With negative `days` it has expired already.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if isinstance(name, str) else name
        builder = _builder(subject, self.certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(_signed_by(self.certificate), critical=False)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
        return Issued(key, builder.sign(self.key, hashes.SHA256()), self.certificate)


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: PrivateKey, password: str | None = None) -> str:
    """Return the key as PKCS #8, the only form that Kafka reads."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def names_of(chain_pem: bytes) -> tuple[x509.Name, list[str]]:
    """Return the subject and the alternative names of the first certificate of a file. Raise ValueError if there is none."""
    certificate = x509.load_pem_x509_certificates(chain_pem)[0]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return certificate.subject, []
    return certificate.subject, [str(each.value) for each in names]


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: PrivateKey, days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - BEFORE)
        .not_valid_after(end)
    )


def _signed_by(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Name the issuer's key (RFC 5280, 4.2.1.1): since 3.13 Python's clients reject a certificate without it
    (VERIFY_X509_STRICT).
    """
    try:
        known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key: Any = issuer.public_key()  # an issuer only has a kind of key that can sign
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
