"""A node with a listener for each security protocol, and the settings with which a client logs in by each mechanism.

Apache Kafka takes the same properties, so a run against it shows the results of a client's own suite there.

    PLAINTEXT       the suites' own commands, and super users' work
    SASL            SASL_PLAINTEXT: PLAIN, SCRAM, OAUTHBEARER with tokens without a signature, GSSAPI if there is a KDC
    TLS             SSL, a client certificate is required
    SASLTLS         SASL_SSL: PLAIN, SCRAM, OAUTHBEARER with tokens of the identity provider, GSSAPI if there is a KDC
    OPENTLS         SSL, no client certificate is asked for
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.local.certificates import Authority
from ottla.testing import Cluster
from tests import kdc
from tests.compat.identity import AUDIENCE, ISSUER, Identity
from tests.compat.node import CLUSTER_DEFAULTS, DEFAULTS, running_node
from tests.kdc import REALM, Kdc
from tools.apache_kafka import ApacheKafka

HOST = "localhost"
#: A listener's security protocol, and its port above the first one.
LISTENERS = {
    "PLAINTEXT": ("PLAINTEXT", 0),
    "SASL": ("SASL_PLAINTEXT", 10),
    "TLS": ("SSL", 20),
    "SASLTLS": ("SASL_SSL", 30),
    "OPENTLS": ("SSL", 40),
}
#: The listener to which a client of this protocol connects.
OF_PROTOCOL = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL", "SSL": "TLS", "SASL_SSL": "SASLTLS"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
#: kafka-python's tests log in as alice with this password.
USER, PASSWORD = "alice", "alice-secret"
STORE_PASSWORD = "planted-store-password"
SERVICE = f"kafka/{HOST}"
#: The value is made for librdkafka's 0142: half of it is the lifetime of a token, and has to be well above the second between
#: re-authentications.
SESSION_MS = 10_000
SCRAM_SECONDS_MAX = 20
KAFKA = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{KAFKA}.plain.PlainLoginModule required",
    **dict.fromkeys(SCRAM, f"{KAFKA}.scram.ScramLoginModule required"),
    "OAUTHBEARER": f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule required",
}


@dataclass(frozen=True)
class Files:
    """Keys and certificates of the node and of the only client, and the identity provider."""

    directory: Path
    identity: Identity
    kdc: Kdc | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (*MECHANISMS, "GSSAPI") if self.kdc is not None else MECHANISMS

    @property
    def java_options(self) -> str:
        return "" if self.kdc is None else f" -Djava.security.krb5.conf={self.kdc.environment['KRB5_CONFIG']}"

    def kerberos(self, principal: str) -> str:
        """Return an entry of a JAAS file."""
        assert self.kdc is not None
        options = f'keyTab="{self.kdc.keytab(principal)}" principal="{principal}@{REALM}"'
        return f"{MODULES['GSSAPI']} useKeyTab=true storeKey=true {options};"

    def path(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def ca(self) -> str:
        return self.path("ca.pem")


def make_files(directory: Path, realm: Kdc | None = None) -> Files:
    directory.mkdir(parents=True, exist_ok=True)
    authority = Authority.create("compat CA")
    node = authority.issue("node", [HOST, "127.0.0.1"])
    client = authority.issue("client")
    files = Files(directory, Identity(USER, directory / "jwks.json"), realm)
    for name, text in {
        "ca.pem": authority.pem,
        "node.pem": node.key_pem + node.chain_pem,
        "client.crt": client.chain_pem,
        "client.key": client.encrypted_key_pem(STORE_PASSWORD),
        "client.pem": client.key_pem + client.chain_pem,
        "token": files.identity.token(),
    }.items():
        (directory / name).write_text(text)
    return files


def node_properties(port: int, files: Files) -> dict[str, str]:
    addresses = ",".join(f"{name}://{HOST}:{port + step}" for name, (_, step) in LISTENERS.items())
    plain = f'{MODULES["PLAIN"]} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    oauth = MODULES["OAUTHBEARER"]
    validator = f"{KAFKA}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    own = {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{port + 100}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{name}:{protocol}" for name, (protocol, _) in LISTENERS.items())]
        ),
        "connections.max.reauth.ms": str(SESSION_MS),
        "delegation.token.secret.key": "planted-delegation-token-key",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.path("node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f'{oauth} unsecuredLoginStringClaim_sub="node";',
        "listener.name.sasltls.oauthbearer.sasl.jaas.config": f"{oauth};",
        "listener.name.sasltls.oauthbearer.sasl.server.callback.handler.class": validator,
        "listener.name.sasltls.sasl.oauthbearer.jwks.endpoint.url": files.identity.keys.as_uri(),
        "listener.name.sasltls.sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.sasltls.sasl.oauthbearer.expected.audience": AUDIENCE,
        "super.users": "User:ANONYMOUS",
        "sasl.kerberos.service.name": SERVICE.partition("/")[0],
    }
    for listener in ("sasl", "sasltls"):
        own[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(files.mechanisms)
        if files.kdc is not None:
            own[f"listener.name.{listener}.gssapi.sasl.jaas.config"] = files.kerberos(SERVICE)
        own[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in SCRAM:
            own[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = f"{MODULES[mechanism]};"
    return own


@dataclass(frozen=True)
class SecuredNode:
    port: int
    files: Files
    log: Path

    def listener_port(self, name: str) -> int:
        return self.port + LISTENERS[name][1]

    def address(self, protocol: str) -> str:
        return f"{HOST}:{self.listener_port(OF_PROTOCOL[protocol])}"


@contextmanager
def secured_cluster(port: int, logs: Path, name: str, nodes: int) -> Iterator[SecuredNode]:
    """Run such nodes on several ports, and yield the first. Ports of a listener are consecutive."""
    files = make_files(logs / f"{name}-files")
    per_node = {}
    # Kafka's default: some tests want two members in a group's first rebalance, and a handshake or a login delays the second.
    delay = {"group.initial.rebalance.delay.ms": "3000"}
    for step in range(nodes):
        per_node[step + 1] = DEFAULTS | CLUSTER_DEFAULTS | delay | node_properties(port + step, files)
    with Cluster(nodes, directory=str(logs / name), base_port=port, per_node=per_node):
        yield _with_user(SecuredNode(port, files, logs / name))


@contextmanager
def secured_node(port: int, logs: Path, name: str, *, apache_kafka: bool = False, **more: str) -> Iterator[SecuredNode]:
    """Run a fresh node, of Apache Kafka if that is wanted, with `more` properties. The user of the tests has SCRAM
    credentials.
    """
    with ExitStack() as stack:
        realm = None if kdc.missing() else stack.enter_context(_realm(logs / f"{name}-kdc"))
        files = make_files(logs / f"{name}-files", realm)
        properties = node_properties(port, files) | more
        log = logs / f"node-{name}.log"
        if apache_kafka:
            allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
            jvm = f"-Xmx1G -Xms256m -XX:+UseSerialGC -D{allowed}={files.identity.keys.as_uri()}{files.java_options}"
            node = ApacheKafka(port, data=logs / name, properties=DEFAULTS | properties, jvm=jvm, first_id=0)
            stack.enter_context(node)
            log = node.data / "node1.log"
        else:
            stack.enter_context(running_node(port, log, **properties))
        yield _with_user(SecuredNode(port, files, log))


@contextmanager
def _realm(directory: Path) -> Iterator[Kdc]:
    """Run a KDC with the principals of the node and of the user. Clients in this process get the user's tickets by the key
    table.
    """
    directory.mkdir()
    with kdc.kdc_in(directory) as made:
        made.add(SERVICE)
        os.environ["KRB5_CLIENT_KTNAME"] = made.add(USER)
        try:
            yield made
        finally:
            del os.environ["KRB5_CLIENT_KTNAME"]


def _with_user(node: SecuredNode) -> SecuredNode:
    admin = AdminClient({"bootstrap.servers": node.address("PLAINTEXT")})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(SCRAM_SECONDS_MAX)
    return node


# The name of the property or argument in each client


def librdkafka(node: SecuredNode, protocol: str, mechanism: str = "") -> dict[str, str]:
    found = {"bootstrap.servers": node.address(protocol), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl.ca.location"] = node.files.ca
    if protocol == "SSL":
        found |= {
            "ssl.certificate.location": node.files.path("client.crt"),
            "ssl.key.location": node.files.path("client.key"),
            "ssl.key.password": STORE_PASSWORD,
        }
    if mechanism:
        found["sasl.mechanism"] = mechanism
    if mechanism in ("PLAIN", *SCRAM):
        found |= {"sasl.username": USER, "sasl.password": PASSWORD}
    return found


def java(node: SecuredNode, protocol: str, mechanism: str = "") -> dict[str, str]:
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": node.files.ca}
    if protocol == "SSL":
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": node.files.path("client.pem")}
    if not mechanism:
        return found
    if mechanism == "GSSAPI":
        return found | {
            "sasl.mechanism": mechanism,
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": node.files.kerberos(USER),
        }
    options = f'username="{USER}" password="{PASSWORD}"'
    if mechanism == "OAUTHBEARER" and protocol == "SASL_PLAINTEXT":
        options = f'unsecuredLoginStringClaim_sub="{USER}"'
    elif mechanism == "OAUTHBEARER":
        options = ""
        handler = f"{KAFKA}.oauthbearer.OAuthBearerLoginCallbackHandler"
        found |= {
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": (node.files.directory / "token").as_uri(),
        }
    return found | {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{MODULES[mechanism]} {options};"}
