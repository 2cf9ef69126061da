"""Reads the GSSAPI settings from a node's configuration: the key table of a listener, and the node's own login at other nodes.

listener.name.<listener>.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";
sasl.kerberos.service.name=kafka        or the option serviceName
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.server.config.errors import ConfigError
from ottla.server.config.key import Values
from ottla.server.sasl import kerberos_names
from ottla.server.sasl.exchange import Mechanism
from ottla.server.sasl.gssapi import GssapiClient, GssapiExchange
from ottla.server.sasl.kerberos import Acceptor, Initiating, KerberosFailure, Keys, default_realm, library

SERVICE = "sasl.kerberos.service.name"
INSTALL = "pip install 'ottla[gssapi]'"


def mechanism(name: str, options: Mapping[str, str], values: Values) -> Mechanism:
    """Returns the server's side. `options` are those of the JAAS entry called `name`.

    Raises:
        ConfigError: the library, the key table, its key or the service's name is missing, or a rule is malformed.
    """
    service_name(name, options, values)
    acceptor = _acceptor("sasl.enabled.mechanisms", name, keys_of(name, options))
    rules = kerberos_names.read_rules(default_realm(), values[kerberos_names.NAME])
    return partial(GssapiExchange, acceptor.begin, rules)


def client(enabled_by: str, name: str, options: Mapping[str, str], values: Values) -> ClientOf:
    """Returns the client's side; `enabled_by` is the property that says the mechanism. Raises ConfigError, as `mechanism` does."""
    keys = keys_of(name, options)
    _acceptor(enabled_by, name, keys)  # The KDC is not asked before the first login, because it may be down.
    return ClientOf(keys, service_name(name, options, values))


def command(name: str, options: Mapping[str, str], values: Values) -> ClientOf:
    """Returns the client's side of a command, which may also have the tickets of kinit (useTicketCache). Raises ConfigError."""
    if options.get("useTicketCache", "").lower() != "true":
        return client(name, name, options, values)
    try:
        library()
    except (ImportError, OSError) as error:
        raise _not_installed(name, error) from None
    return ClientOf(None, service_name(name, options, values))


class ClientOf:
    """Makes this node's logins."""

    def __init__(self, keys: Keys | None, service: str) -> None:
        self._keys = keys
        self._service = service

    async def __call__(self, host: str) -> GssapiClient:
        return GssapiClient(Initiating(self._keys, self._service, host))


def keys_of(name: str, options: Mapping[str, str]) -> Keys:
    """Raises ConfigError: the JAAS entry called `name` has no key table."""
    if options.get("useKeyTab", "").lower() != "true":
        raise _wrong(name, "has no useKeyTab=true, and a node has no password or ticket for Kerberos", "useKeyTab=true")
    for option, example in (("keyTab", "/etc/kafka.keytab"), ("principal", "kafka/host@REALM")):
        if not options.get(option):
            raise _wrong(name, f"has no {option}", f'{option}="{example}"')
    return Keys(options["keyTab"], options["principal"])


def service_name(name: str, options: Mapping[str, str], values: Values) -> str:
    """Returns the primary component of the nodes' principals. Raises ConfigError."""
    option, configured = options.get("serviceName"), values[SERVICE]
    if option is not None and configured is not None and option != configured:
        message = f"{name} has serviceName={option}, and {SERVICE} is {configured}"
        raise ConfigError(SERVICE, configured, "", "leave one of them out", message=message)
    found: str | None = option or configured
    if not found:
        message = "No serviceName defined in either JAAS or Kafka config"
        raise ConfigError(
            SERVICE, None, "", f"{SERVICE}=kafka, the part of the principal before the slash", message=message
        )
    return found


def _acceptor(enabled_by: str, name: str, keys: Keys) -> Acceptor:
    try:
        return Acceptor(keys)
    except (ImportError, OSError) as error:
        raise _not_installed(enabled_by, error) from None
    except KerberosFailure as failure:
        message = f"{name}: the key table {keys.keytab} cannot be used for {keys.principal}: {failure}"
        remedy = f"look at `klist -k {keys.keytab}`, which has to name the principal, and at the file's permissions"
        raise ConfigError(name, None, "", remedy, message=message) from None


def _not_installed(enabled_by: str, error: Exception) -> ConfigError:
    message = f"{enabled_by} has GSSAPI, for which the optional library is missing: {error}"
    return ConfigError(enabled_by, None, "", f"{INSTALL}, or leave GSSAPI out", message=message)


def _wrong(name: str, what: str, option: str) -> ConfigError:
    return ConfigError(name, None, "", f"add {option}", message=f"{name} {what}")
