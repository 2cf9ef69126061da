"""The environment of the bitnami image: KAFKA_CFG_<NAME> is a property with dots for underscores, and no rule for others.

Some thirty old names without CFG are aliases. With a mounted server.properties no variable counts. SASL users and TLS stores
have their own variables, from which properties are made for each listener.
"""

from __future__ import annotations

import re

from ottla.container.settings import ContainerError, Environment, ReadFile, Resolution, User, read_value

BITNAMI = "bitnami/kafka"
PREFIX = "KAFKA_CFG_"

#: Old variables without CFG: KAFKA_NODE_ID stands for the property node.id, as KAFKA_CFG_NODE_ID does.
SAME_NAME_ALIASES = (
    "ADVERTISED_LISTENERS", "BROKER_ID", "NODE_ID", "CONTROLLER_QUORUM_VOTERS", "PROCESS_ROLES", "DEFAULT_REPLICATION_FACTOR",
    "DELETE_TOPIC_ENABLE", "INTER_BROKER_LISTENER_NAME", "LISTENERS", "LISTENER_SECURITY_PROTOCOL_MAP", "LOG_DIRS",
    "LOG_FLUSH_INTERVAL_MESSAGES", "LOG_FLUSH_INTERVAL_MS", "LOG_MESSAGE_FORMAT_VERSION", "LOG_RETENTION_BYTES",
    "LOG_RETENTION_CHECK_INTERVALS_MS", "LOG_RETENTION_HOURS", "LOG_SEGMENT_BYTES", "MESSAGE_MAX_BYTES", "NUM_IO_THREADS",
    "NUM_NETWORK_THREADS", "NUM_PARTITIONS", "NUM_RECOVERY_THREADS_PER_DATA_DIR", "OFFSETS_TOPIC_REPLICATION_FACTOR",
    "SOCKET_RECEIVE_BUFFER_BYTES", "SOCKET_REQUEST_MAX_BYTES", "SOCKET_SEND_BUFFER_BYTES",
    "SSL_ENDPOINT_IDENTIFICATION_ALGORITHM", "TRANSACTION_STATE_LOG_MIN_ISR", "TRANSACTION_STATE_LOG_REPLICATION_FACTOR",
    "ZOOKEEPER_CONNECT", "ZOOKEEPER_CONNECTION_TIMEOUT_MS",
)  # fmt: skip
OTHER_ALIASES = {
    "KAFKA_LOGS_DIRS": "LOG_DIRS",
    "KAFKA_SEGMENT_BYTES": "LOG_SEGMENT_BYTES",
    "KAFKA_MAX_MESSAGE_BYTES": "MESSAGE_MAX_BYTES",
    "KAFKA_ZOOKEEPER_CONNECT_TIMEOUT_MS": "ZOOKEEPER_CONNECTION_TIMEOUT_MS",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "AUTO_CREATE_TOPICS_ENABLE",
}
ALIASES = {f"KAFKA_{name}": name for name in SAME_NAME_ALIASES} | OTHER_ALIASES

#: The variables that may be given as <NAME>_FILE. KAFKA_TLS_TRUSTSTORE_FILE is itself a path, so its file is
#: TRUSTSTORE_FILE_FILE.
FILE_VARIABLES = (
    "KAFKA_CLUSTER_ID", "KAFKA_INITIAL_CONTROLLERS", "KAFKA_SKIP_KRAFT_STORAGE_INIT", "KAFKA_CFG_SASL_ENABLED_MECHANISMS",
    "KAFKA_CLIENT_LISTENER_NAME", "KAFKA_OPTS", "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD", "KAFKA_CONTROLLER_USER",
    "KAFKA_CONTROLLER_PASSWORD", "KAFKA_CERTIFICATE_PASSWORD", "KAFKA_TLS_TRUSTSTORE_FILE", "KAFKA_TLS_TYPE", "KAFKA_TLS_CLIENT_AUTH",
    "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS", "KAFKA_HEAP_OPTS", "JAVA_TOOL_OPTIONS", "KAFKA_KRAFT_CLUSTER_ID",
    "KAFKA_MOUNTED_CONF_DIR",
)  # fmt: skip

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
DEFAULT_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
YES = frozenset({"yes", "true", "1"})
FORMAT_EMPTY = "ottla.format.empty.directories"
#: Users mount certificates in this directory, unless they mount over the image's own directory.
MOUNTED_CERTIFICATES = "/bitnami/kafka/config/certs"
_LIST = re.compile(r"[,;]")


def property_name(variable: str) -> str:
    """Return the property of a variable.

    KAFKA_CFG_SASL_SSL_X is sasl_ssl.x: only the two names with an underscore that Kafka has keep it.
    """
    if variable == "KAFKA_CFG_ZOOKEEPER_CLIENTCNXNSOCKET":
        return "zookeeper.clientCnxnSocket"
    dotted = variable.removeprefix(PREFIX).replace("_", ".").lower()
    return dotted.replace("sasl.ssl", "sasl_ssl").replace("sasl.plaintext", "sasl_plaintext")


def with_aliases(environment: Environment) -> dict[str, tuple[str, str]]:
    """Return for each KAFKA_CFG_ variable its value, and the variable that gave it.

    As in that image, an alias wins over the name it stands for.
    """
    found = {name: (value, name) for name, value in environment.items() if name.startswith(PREFIX)}
    for alias, name in ALIASES.items():
        if alias in environment:
            found[PREFIX + name] = (environment[alias], alias)
    return found


def map_variables(environment: Environment, resolution: Resolution) -> None:
    variables = with_aliases(environment)
    for variable in sorted(variables):
        value, origin = variables[variable]
        resolution.set(property_name(variable), read_value(origin, value), origin)
    resolution.initial_controllers = environment.get("KAFKA_INITIAL_CONTROLLERS") or None
    if environment.get("KAFKA_SKIP_KRAFT_STORAGE_INIT", "").lower() in YES:
        resolution.set(FORMAT_EMPTY, "false", "KAFKA_SKIP_KRAFT_STORAGE_INIT")
    if "KAFKA_CLIENT_LISTENER_NAME" in environment:
        resolution.notes.append(
            "KAFKA_CLIENT_LISTENER_NAME: no client properties are written here; tools take --command-config"
        )
    protocols = _listener_protocols(resolution)
    if any(protocol.startswith("SASL") for protocol in protocols.values()):
        _set_sasl(environment, resolution, protocols)


def listed(text: str) -> list[str]:
    return [word.strip() for word in _LIST.split(text) if word.strip()]


def _listener_protocols(resolution: Resolution) -> dict[str, str]:
    """Return the listeners in the protocol map."""
    text = resolution.get("listener.security.protocol.map") or ""
    pairs = (entry.partition(":") for entry in text.split(",") if ":" in entry)
    return {name.strip(): protocol.strip().upper() for name, _, protocol in pairs}


def _set_sasl(environment: Environment, resolution: Resolution, protocols: dict[str, str]) -> None:
    """Set the users from the image's variables, for each listener and mechanism."""
    resolution.set_default("sasl.enabled.mechanisms", DEFAULT_MECHANISMS, f"{BITNAMI} default")
    users = listed(environment.get("KAFKA_CLIENT_USERS", environment.get("KAFKA_BROKER_USER", "user")))
    passwords = listed(environment.get("KAFKA_CLIENT_PASSWORDS", environment.get("KAFKA_BROKER_PASSWORD", "bitnami")))
    if len(users) != len(passwords):
        raise ContainerError(
            f"{len(users)} users but {len(passwords)} passwords",
            "KAFKA_CLIENT_USERS, KAFKA_CLIENT_PASSWORDS",
            "list one password for each user, in the same order",
        )
    clients = [User(*pair) for pair in zip(users, passwords, strict=True)]
    inter_broker = User(
        environment.get("KAFKA_INTER_BROKER_USER", "user"),
        environment.get("KAFKA_INTER_BROKER_PASSWORD", "bitnami"),
    )
    controller = User(
        environment.get("KAFKA_CONTROLLER_USER", "controller_user"),
        environment.get("KAFKA_CONTROLLER_PASSWORD", "bitnami"),
    )
    own = {
        (resolution.get("inter.broker.listener.name") or "INTERNAL").upper(): inter_broker,
        (resolution.get("controller.listener.names") or "CONTROLLER").upper(): controller,
    }
    mechanisms = [m.upper() for m in listed(resolution.get("sasl.enabled.mechanisms") or "")]
    if any(mechanism.startswith("SCRAM") for mechanism in mechanisms):
        # A user needs to be there only once: by default clients and brokers are the same user.
        resolution.users = list({user.name: user for user in (controller, inter_broker, *clients)}.values())
    for listener, protocol in protocols.items():
        if not protocol.startswith("SASL"):
            continue
        mine = own.get(listener.upper())
        for mechanism in mechanisms:
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            resolution.set_default(name, _jaas(mechanism, clients, mine), "KAFKA_CLIENT_USERS and its like")


def _jaas(mechanism: str, clients: list[User], own: User | None) -> str:
    module = SCRAM_MODULE if mechanism.startswith("SCRAM") else PLAIN_MODULE
    words = [module, "required"]
    if own is not None:
        words += [f'username="{_quoted(own.name)}"', f'password="{_quoted(own.password)}"']
    if module is PLAIN_MODULE:
        known = {user.name: user.password for user in clients}
        if own is not None:
            known.setdefault(own.name, own.password)
        words += [f'user_{user}="{_quoted(password)}"' for user, password in known.items()]
    return " ".join(words) + ";"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def set_stores(environment: Environment, resolution: Resolution, read: ReadFile) -> None:
    """Set keystore and truststore to the paths of that image, if a listener needs them."""
    text = f"{resolution.get('listeners')},{resolution.get('listener.security.protocol.map')}"
    if "SSL" not in text:
        return
    kind = environment.get("KAFKA_TLS_TYPE", "JKS").upper()
    ending = "pem" if kind == "PEM" else "jks"
    folder = MOUNTED_CERTIFICATES
    resolution.set_default("ssl.keystore.type", kind, "KAFKA_TLS_TYPE")
    key = read(f"{folder}/kafka.keystore.key") if kind == "PEM" else None
    chain = read(f"{folder}/kafka.keystore.pem") if kind == "PEM" else None
    if key is None or chain is None:
        resolution.set_default("ssl.keystore.location", f"{folder}/kafka.keystore.{ending}", f"{BITNAMI} default")
    else:
        # That image has two files, but Kafka's property for a file expects both in one.
        resolution.set_default("ssl.keystore.key", key.decode(), f"{folder}/kafka.keystore.key")
        resolution.set_default("ssl.keystore.certificate.chain", chain.decode(), f"{folder}/kafka.keystore.pem")
    resolution.set_default("ssl.truststore.type", kind, "KAFKA_TLS_TYPE")
    trusted = environment.get("KAFKA_TLS_TRUSTSTORE_FILE") or f"{folder}/kafka.truststore.{ending}"
    resolution.set_default("ssl.truststore.location", trusted, "KAFKA_TLS_TRUSTSTORE_FILE")
    resolution.set_default(
        "ssl.client.auth", environment.get("KAFKA_TLS_CLIENT_AUTH", "required"), "KAFKA_TLS_CLIENT_AUTH"
    )
    if password := environment.get("KAFKA_CERTIFICATE_PASSWORD"):
        stores = () if kind == "PEM" else ("ssl.keystore.password", "ssl.truststore.password")
        for name in ("ssl.key.password", *stores):
            resolution.set_default(name, password, "KAFKA_CERTIFICATE_PASSWORD")
