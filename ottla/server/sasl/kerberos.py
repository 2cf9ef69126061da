"""Kerberos by the system's GSSAPI library (MIT Kerberos), through python-gssapi: the optional extra `ottla[gssapi]`.

The library reads krb5.conf (KRB5_CONFIG) and key tables itself, and an initiator asks the KDC: establishing a context belongs on a
worker. It releases the GIL. wrap and unwrap compute for 10 us.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple


class KerberosFailure(Exception):
    """The library's reason. It has names and no keys."""


class Keys(NamedTuple):
    """A principal and the key table that has its keys."""

    keytab: str
    principal: str


def library() -> ModuleType:
    """Raises ImportError: the extra is not installed, or the system has no GSSAPI library."""
    import gssapi.raw

    raw: ModuleType = gssapi.raw
    return raw


@contextmanager
def failures(raw: ModuleType) -> Iterator[None]:
    try:
        yield
    except raw.GSSError as error:
        texts = (*error.get_all_statuses(error.maj_code, True), *error.get_all_statuses(error.min_code, False))
        raise KerberosFailure("; ".join(texts)) from None


def default_realm() -> str:
    """Returns the realm of names without one; empty if krb5.conf has none, as in Kafka."""
    raw = library()
    try:
        with failures(raw):
            name = raw.import_name(b"any", raw.NameType.kerberos_principal)
            _, _, realm = _display(raw, raw.canonicalize_name(name, raw.MechType.kerberos)).rpartition("@")
    except KerberosFailure:
        return ""
    return realm


def _display(raw: ModuleType, name: Any) -> str:
    text: bytes = raw.display_name(name, False).name
    return text.decode()


def _name(raw: ModuleType, principal: str) -> Any:
    return raw.import_name(principal.encode(), raw.NameType.kerberos_principal)


class Context:
    """An established or growing security context. Only one thread uses it at a time."""

    def __init__(self, raw: ModuleType) -> None:
        self._raw = raw
        self._context: Any = None

    def wrap(self, message: bytes) -> bytes:
        """Signs the message, without encrypting it. Raises KerberosFailure."""
        with failures(self._raw):
            return bytes(self._raw.wrap(self._context, message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        """Raises KerberosFailure: the peer has another key, or the message is malformed."""
        with failures(self._raw):
            return bytes(self._raw.unwrap(self._context, message).message)


class Accepting(Context):
    def __init__(self, raw: ModuleType, credentials: Any) -> None:
        super().__init__(raw)
        self._credentials = credentials
        self._initiator: Any = None
        self.established = False

    def accept(self, token: bytes) -> bytes:
        """Returns the token for the initiator, which may be empty. Raises KerberosFailure."""
        with failures(self._raw):
            step = self._raw.accept_sec_context(token, self._credentials, self._context)
            self._context, self._initiator, self.established = step.context, step.initiator_name, not step.more_steps
            return bytes(step.token or b"")

    def initiator(self) -> str:
        """Returns the principal of the other side. Raises KerberosFailure, ValueError."""
        with failures(self._raw):
            return _display(self._raw, self._initiator)


class Acceptor:
    """The keys of the service that this node is. Each context reads the key table again, so that new keys need no restart."""

    def __init__(self, keys: Keys) -> None:
        """Raises ImportError; KerberosFailure: the table cannot be read, or has no key of the principal."""
        self._raw = raw = library()
        with failures(raw):
            self._credentials = raw.acquire_cred_from(
                {b"keytab": keys.keytab.encode()}, _name(raw, keys.principal), None, [raw.MechType.kerberos], "accept"
            ).creds

    def begin(self) -> Accepting:
        return Accepting(self._raw, self._credentials)


class Initiating(Context):
    """This node's side of a login at another node. Each node proves its identity to the other (mutual authentication)."""

    def __init__(self, keys: Keys | None, service: str, host: str) -> None:
        """Takes `keys`; None means the tickets that kinit has got (KRB5CCNAME)."""
        super().__init__(library())
        self._keys = keys
        self._target = f"{service}@{host}"
        self._credentials: Any = None
        self.established = False

    def step(self, token: bytes) -> bytes:
        """Returns the token for the acceptor, which may be empty. It may ask the KDC. Raises KerberosFailure."""
        raw = self._raw
        with failures(raw):
            if self._context is None:
                self._credentials = self._acquire()
            step = raw.init_sec_context(
                raw.import_name(self._target.encode(), raw.NameType.hostbased_service),
                self._credentials,
                self._context,
                raw.MechType.kerberos,
                (raw.RequirementFlag.mutual_authentication, raw.RequirementFlag.integrity),
                input_token=token or None,
            )
            self._context, self.established = step.context, not step.more_steps
            return bytes(step.token or b"")

    def _acquire(self) -> Any:
        """Tickets are kept in memory by principal. The library gets new ones after half of their lifetime."""
        raw, keys = self._raw, self._keys
        if keys is None:
            return raw.acquire_cred(None, None, [raw.MechType.kerberos], "initiate").creds
        store = {b"client_keytab": keys.keytab.encode(), b"ccache": f"MEMORY:ottla {keys.principal}".encode()}
        return raw.acquire_cred_from(store, _name(raw, keys.principal), None, [raw.MechType.kerberos], "initiate").creds

    def initiator(self) -> str:
        """Returns the principal of this side. Raises KerberosFailure."""
        with failures(self._raw):
            return _display(self._raw, self._raw.inquire_cred(self._credentials).name)
