"""Nodes of both kinds that log in at each other, by each mechanism of SASL over TLS, controllers by certificates or by Kerberos."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.local.certificates import Authority
from tests import kdc
from tests.compat.mixed import clients
from tests.compat.mixed.nodes import JVM, Mixed, Node, NotSo
from tests.compat.mixed.operations import IDS, INTERNAL, three
from tests.ottla.conftest import Cli

LOGIN = "org.apache.kafka.common.security"
#: The login of each mechanism: how a node logs in, and what it accepts.
MODULES = {
    "PLAIN": f'{LOGIN}.plain.PlainLoginModule required username="node" password="planted" user_node="planted";',
    "SCRAM-SHA-256": f'{LOGIN}.scram.ScramLoginModule required username="node" password="planted";',
    "SCRAM-SHA-512": f'{LOGIN}.scram.ScramLoginModule required username="node" password="planted";',
    "OAUTHBEARER": f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="node";',
}
#: A principal of Kerberos has the name of its host, and Java looks it up by the address.
LOCALHOST = "localhost"
SERVICE = f"kafka/{LOCALHOST}"


def connect(mixed: Mixed, mechanism: str, **own: str) -> None:
    """Brokers log in at each other by SASL_SSL, controllers by certificates unless `own` sets another way; each node leads,
    follows and comes back.
    """
    nodes = three(mixed)
    authority = Authority.create("mixed CA")
    issued = authority.issue("node", [LOCALHOST, "127.0.0.1"])
    (mixed.directory / "ca.pem").write_text(authority.pem)
    (mixed.directory / "node.pem").write_text(issued.key_pem + issued.chain_pem)
    scram = [f"--add-scram={mechanism}=[name=node,password=planted]"] if mechanism.startswith("SCRAM") else []
    for node in nodes:
        node.own |= _secured(node, mechanism) | own
        node.format(*scram).start()
    mixed.wait_brokers(*IDS)
    written: list[str] = []
    mixed.create("t", [IDS], min_insync_replicas=2)
    mixed.create("acls", [IDS])
    Cli(mixed.bootstrap).ok("acl", "add", "alice", "read", "topic:t")
    mixed.wait_isr("t", IDS)
    for turn, node in enumerate(nodes):
        more = [f"{turn} {i}" for i in range(300)]
        clients.produce(mixed.bootstrap, "t", more)
        written += more
        clients.transact(mixed.bootstrap, "t", (committed := [f"committed {turn}"]), "id")
        written += committed
        node.kill()
        mixed.wait_isr("t", [each for each in IDS if each != node.id])
        mixed.create(f"while-{node.id}-was-down", [[each for each in IDS if each != node.id]])
        node.start()
        mixed.wait_isr("t", IDS)
        clients.check(mixed.bootstrap, "t", written)
        if not Cli(mixed.bootstrap).rows("acl", "list"):
            raise NotSo("the access control entry is gone")


def _secured(node: Node, mechanism: str) -> dict[str, str]:
    """Set the node's listener for brokers, its keys, and an authorizer with the nodes as super users."""
    directory = node.mixed.directory
    return {
        "listeners": f"PLAINTEXT://{node.bootstrap},BROKERS://{node.login_bootstrap},CONTROLLER://{node.controller_address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.enabled.mechanisms": mechanism,
        f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config": MODULES.get(mechanism, ""),
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{directory}/node.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{directory}/ca.pem",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:node;User:CN=node",
    }


def connect_by_secrets(directory: Path, mechanism: str) -> None:
    """Log in by a password or a token that is in the properties."""
    with Mixed(directory, IDS, **INTERNAL) as mixed:
        connect(mixed, mechanism)


def connect_by_kerberos(directory: Path) -> None:
    """Log in by tickets of a KDC, brokers at brokers, and controllers and brokers at controllers, which have no client's
    certificate.
    """
    directory.mkdir()
    with kdc.kdc_in(directory) as realm, Mixed(directory, IDS, **INTERNAL) as mixed:
        mixed.loopback = LOCALHOST
        mixed.jvm = f"{JVM} -Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}"
        keys = f'keyTab="{realm.add(SERVICE)}" principal="{SERVICE}@{kdc.REALM}"'
        login = f"com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true {keys};"
        own = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:SASL_SSL",
            "sasl.mechanism.controller.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.brokers.gssapi.sasl.jaas.config": login,
            "listener.name.controller.gssapi.sasl.jaas.config": login,
            "listener.name.controller.ssl.client.auth": "none",
            "super.users": "User:ANONYMOUS;User:kafka",
        }
        connect(mixed, "GSSAPI", **own)


STEPS: dict[str, Callable[[Path], None]] = {
    **{f"secured-{name.lower()}": partial(connect_by_secrets, mechanism=name) for name in MODULES},
    "secured-gssapi": connect_by_kerberos,
}
