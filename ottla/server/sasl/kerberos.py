"""Kerberos by the system's GSSAPI library (MIT Kerberos), through python-gssapi: the optional extra `ottla[gssapi]`.

The library itself reads krb5.conf (KRB5_CONFIG) and key tables, and an initiator contacts the KDC: so a context is established
on a worker. The library releases the GIL. wrap and unwrap take 10 us.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from ottla.server.config.key import ConfigError
from ottla.server.java_pattern import check_length, compiled
from ottla.server.principal import expand


class KerberosFailure(Exception):
    """The library's reason. It has names, but no keys."""


class PrincipalKeys(NamedTuple):
    """A principal, and the key table with its keys."""

    keytab: str
    principal: str


def library() -> ModuleType:
    """Raise ImportError: the extra is not installed, or the system has no GSSAPI library."""
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
    """Return the realm for names without one. It is empty if krb5.conf has none, as in Kafka."""
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
    """A security context, established or in progress. Only one thread uses it at a time."""

    def __init__(self, raw: ModuleType) -> None:
        self._raw = raw
        self._context: Any = None

    def wrap(self, message: bytes) -> bytes:
        """Sign the message, without encrypting it. Raises KerberosFailure."""
        with failures(self._raw):
            return bytes(self._raw.wrap(self._context, message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        """Raise KerberosFailure: the peer has another key, or the message is malformed."""
        with failures(self._raw):
            return bytes(self._raw.unwrap(self._context, message).message)


class Accepting(Context):
    def __init__(self, raw: ModuleType, credentials: Any) -> None:
        super().__init__(raw)
        self._credentials = credentials
        self._initiator: Any = None
        self.established = False

    def accept(self, token: bytes) -> bytes:
        """Return the token for the initiator, which may be empty. Raises KerberosFailure."""
        with failures(self._raw):
            step = self._raw.accept_sec_context(token, self._credentials, self._context)
            self._context, self._initiator, self.established = step.context, step.initiator_name, not step.more_steps
            return bytes(step.token or b"")

    def initiator(self) -> str:
        """Return the principal of the other side. Raises KerberosFailure, ValueError."""
        with failures(self._raw):
            return _display(self._raw, self._initiator)


def acceptor(keys: PrincipalKeys) -> Callable[[], Accepting]:
    """Return a function that begins a context with this service's keys.

    Each context reads the key table again, so that new keys need no restart.

    Raises ImportError; KerberosFailure: the table cannot be read, or has no key of the principal.
    """
    raw = library()
    with failures(raw):
        credentials = raw.acquire_cred_from(
            {b"keytab": keys.keytab.encode()}, _name(raw, keys.principal), None, [raw.MechType.kerberos], "accept"
        ).creds
    return partial(Accepting, raw, credentials)


class Initiating(Context):
    """This node's side of a login at another node. Each node proves its identity to the other (mutual authentication)."""

    def __init__(self, keys: PrincipalKeys | None, service: str, host: str) -> None:
        """Take `keys`; None means the tickets from kinit (KRB5CCNAME)."""
        super().__init__(library())
        self._keys = keys
        self._target = f"{service}@{host}"
        self._credentials: Any = None
        self.established = False

    def step(self, token: bytes) -> bytes:
        """Return the token for the acceptor, which may be empty. It may contact the KDC. Raises KerberosFailure."""
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
        """Return the credentials.

        Tickets are kept in memory by principal. The library gets new ones after half of their lifetime.
        """
        raw, keys = self._raw, self._keys
        if keys is None:
            return raw.acquire_cred(None, None, [raw.MechType.kerberos], "initiate").creds
        store = {b"client_keytab": keys.keytab.encode(), b"ccache": f"MEMORY:ottla {keys.principal}".encode()}
        return raw.acquire_cred_from(store, _name(raw, keys.principal), None, [raw.MechType.kerberos], "initiate").creds

    def initiator(self) -> str:
        """Return the principal of this side. Raises KerberosFailure."""
        with failures(self._raw):
            return _display(self._raw, self._raw.inquire_cred(self._credentials).name)


# sasl.kerberos.principal.to.local.rules map a Kerberos principal to the name of a Kafka principal.
#
#     RULE:[2:$1@$0](kafka@.*ACME)s/@.*///L, DEFAULT
#
#     [n:format]      for principals of n components: `primary@REALM` has one, `primary/instance@REALM` two; $0 is the realm
#     (pattern)       only if the pattern matches the whole formatted name
#     s/from/to/g     replaces the first match, with g all of them
#     /L  /U          lower or upper case
#     DEFAULT         the first component of a principal of the default realm
#
# The first rule that applies decides. As in Kafka a result with '/' or '@' is an error, and the next rule is not tried.

LOCAL_RULES = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"RULE:\[([0-9]+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU]?)")
_PARAMETER = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE = re.compile("[/@]")


class KerberosRule(NamedTuple):
    """A rule other than DEFAULT. A `match` of None matches every name; a `source` of None replaces nothing."""

    components: int
    format: str
    match: re.Pattern[str] | None
    source: re.Pattern[str] | None
    target: str
    replaces_all: bool
    case: str


class Rules(NamedTuple):
    """A rule of None is DEFAULT."""

    default_realm: str
    rules: Sequence[KerberosRule | None]


def read_rules(default_realm: str, texts: Sequence[str]) -> Rules:
    """Raise ConfigError."""
    return Rules(default_realm, tuple(None if text == DEFAULT else _rule(text) for text in texts))


def _rule(text: str) -> KerberosRule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise _invalid(text, f"Invalid rule: {text}")
    components, form, match, source, target, repeat, case = found.groups()
    try:
        patterns = [None if pattern is None else compiled(pattern) for pattern in (match, source)]
    except ValueError as error:
        raise _invalid(text, f"Invalid pattern: {error}") from None
    return KerberosRule(int(components), form, patterns[0], patterns[1], target or "", repeat is not None, case)


def _invalid(text: str, why: str) -> ConfigError:
    return ConfigError(LOCAL_RULES, text, why, "RULE:[n:format](pattern)s/from/to/g/L, or DEFAULT, separated by commas")


def short_name(rules: Rules, principal: str) -> str:
    """Return the name for Kafka.

    Raises:
        ValueError: no rule applies, or the principal has more than two components. The client is then rejected.
    """
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        if "@" in principal:
            raise ValueError(f"Malformed Kerberos name: {principal}")
        return principal
    primary, instance, realm = found.groups()
    parts = (realm, primary) if instance is None else (realm, primary, instance)
    for rule in rules.rules:
        if rule is None:
            name = primary if realm == rules.default_realm else None
        else:
            name = _apply(rule, parts)
        if name is not None:
            return name
    raise ValueError(f"No rules apply to {principal}, rules {LOCAL_RULES}")


def _apply(rule: KerberosRule, parts: Sequence[str]) -> str | None:
    if len(parts) - 1 != rule.components:
        return None
    name = _PARAMETER.sub(lambda parameter: _part(rule.format, parts, parameter[1]), rule.format)
    check_length(name, LOCAL_RULES)
    if rule.match is not None and rule.match.fullmatch(name) is None:
        return None
    if rule.source is not None:
        count = 0 if rule.replaces_all else 1
        name = rule.source.sub(lambda match: expand(match, rule.target), name, count=count)
    if _NOT_SIMPLE.search(name):
        raise ValueError(f"Non-simple name {name} after a rule of {LOCAL_RULES}")
    return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)


def _part(form: str, parts: Sequence[str], number: str) -> str:
    if not number or int(number) >= len(parts):
        raise ValueError(f"${number} in [{form}] of {LOCAL_RULES} is outside of the valid range 0 to {len(parts) - 1}")
    return parts[int(number)]
