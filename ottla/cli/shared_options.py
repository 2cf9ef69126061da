"""Groups of options that several commands share, and types of options. application.py has the options of every command."""

from __future__ import annotations

from typing import Annotated

from ottla.cli.app import Parameter, option_group
from ottla.cli.application import ConnectionOptions
from ottla.cli.errors import USAGE, CommandFailed
from ottla.protocol.records.compression import CodecName
from ottla.server.address import Address, NoAddress, parse_address

#: The help of options that take one text for one cluster, and a list for a console of several clusters.
ADMIN_HELP = "ID@HOST:PORT of a broker's admin listener (ottla.admin.listener)."
ADMIN_PORT_HELP = "The port of all brokers' admin listeners at their hosts."
REGISTRY_CONFIG_HELP = "A file with the registry's login: basic.auth.user.info=NAME:PASSWORD, ssl.ca.location=FILE."

CheckOnly = Annotated[bool, Parameter(help="Only let the cluster check it.")]
Compression = Annotated[CodecName, Parameter(name=("--compression", "-z"), help="The codec of batches.")]
CreatedReplicas = Annotated[
    int, Parameter(name=("--replication-factor", "-r"), help="Of topics that are created; -1: the brokers'.")
]
Internal = Annotated[bool, Parameter(help="Internal topics too, such as __consumer_offsets.")]
Partitions = Annotated[list[int] | None, Parameter(name=("--partition", "-p"), help="Default: all.")]
PlacesOrAll = Annotated[list[str] | None, Parameter(help="TOPIC or TOPIC:PARTITION ...; default: all.")]
#: The help of `--key`. The help of the `--cert` beside it says what is served.
ServerKey = Annotated[str | None, Parameter(help="The key of the certificate in PEM.")]


@option_group
class TargetOptions:
    """The cluster that records or metadata are written to."""

    to: Annotated[str | None, Parameter(help="Brokers of the target's cluster.")] = None
    to_config: Annotated[str | None, Parameter(help="Client properties for the target's cluster.")] = None
    to_context: Annotated[str | None, Parameter(help="The target's cluster, as `ottla context set` named it.")] = None

    def connection(self, source: ConnectionOptions) -> ConnectionOptions | None:
        """Return how to reach the target, with the timeout of the source; None if no option names it."""
        if self == TARGET:
            return None
        return ConnectionOptions(self.to, self.to_config, self.to_context, source.timeout)


def check_pair(cert: str | None, key: str | None) -> None:
    """Raise CommandFailed if only one of the two files is named."""
    if (cert is None) != (key is None):
        raise CommandFailed("--cert and --key belong together", None, USAGE)


@option_group
class HttpsOptions:
    """The certificate of a server that a command runs."""

    cert: Annotated[str | None, Parameter(help="A certificate chain in PEM: serve HTTPS.")] = None
    key: ServerKey = None

    def check(self) -> None:
        """Raise if only one of the two files is named.

        Raises:
            CommandFailed: one of them is missing; it says which.
        """
        check_pair(self.cert, self.key)


TARGET, HTTPS = TargetOptions(), HttpsOptions()


def read_address(option: str, text: str, *, is_own: bool = False) -> Address:
    """Return the address in an option. The address of a listener may have no host, and port 0.

    Raises:
        CommandFailed: the text is no address.
    """
    try:
        return parse_address(text, any_host=is_own, port_min=0 if is_own else 1)
    except NoAddress as wrong:
        raise CommandFailed(f"{option}: {wrong}", f"for example {option} localhost:9092", USAGE) from None
