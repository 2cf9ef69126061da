"""The environment of apache/kafka and confluentinc/cp-kafka: every KAFKA_<NAME> is a property.

Names: `_` is a dot, `__` an underscore, `___` a dash. apache/kafka removes every "KAFKA_" from the name, cp-kafka only the
first. Values are read as in a properties file, so a backslash escapes.
"""

from __future__ import annotations

import re

from ottla.container.settings import ContainerError, Environment, ReadFile, Resolution, read_value
from ottla.server.sasl.jaas import JaasError, read_sections

APACHE, CONFLUENT = "apache/kafka", "confluentinc/cp-kafka"
PREFIX = "KAFKA_"

#: Variables for the JVM or its scripts. They are no properties of the broker.
NOT_PROPERTIES = frozenset(
    "KAFKA_" + name
    for name in (
        "VERSION", "HEAP_OPTS", "LOG4J_OPTS", "OPTS", "JMX_OPTS", "JVM_PERFORMANCE_OPTS", "GC_LOG_OPTS",
        "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL", "JMX_HOSTNAME", "JMX_PORT",
    )
)  # fmt: skip

#: Variables that name files in the secrets folder, and the purpose of the files.
CREDENTIAL_FILES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
}
CREDENTIAL_CONTENTS = {
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
CREDENTIAL_NAMES = frozenset([*CREDENTIAL_FILES, *CREDENTIAL_CONTENTS])
#: cp-kafka ends with an error if one of these is set.
REPLACED_NAMES = {
    "KAFKA_ADVERTISED_HOST_NAME": "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_ADVERTISED_HOST": "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_ADVERTISED_PORT": "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_HOST": "KAFKA_LISTENERS",
    "KAFKA_PORT": "KAFKA_LISTENERS",
}
#: That image requires CLUSTER_ID too. Here it may be missing, because a directory may have been formatted before, as
#: testcontainers does it.
CONFLUENT_REQUIRED = ("KAFKA_PROCESS_ROLES",)
#: A broker reads this section of a JAAS file if there is none for the listener.
DEFAULT_SECTION = "KafkaServer"
_LOGIN_CONFIG = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
_HOST_OF_LISTENER = re.compile(r"://[^:]*:")


def property_name(variable: str, *, every_prefix: bool = True) -> str:
    """Return the property of a variable: KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_X is
    listener.name.sasl_ssl.scram-sha-512.x.
    """
    bare = variable.replace(PREFIX, "") if every_prefix else variable.removeprefix(PREFIX)
    return bare.lower().replace("_", ".").replace("...", "-").replace("..", "_")


def map_variables(environment: Environment, resolution: Resolution, dialect: str) -> None:
    """Yield every variable that is a property, in the order of their names."""
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in NOT_PROPERTIES and variable not in CREDENTIAL_NAMES:
            name = property_name(variable, every_prefix=dialect == APACHE)
            resolution.set(name, read_value(variable, environment[variable]), variable)
        elif dialect == CONFLUENT and variable.startswith("CONFLUENT_SUPPORT_"):
            name = property_name(variable, every_prefix=False)
            resolution.set(name, read_value(variable, environment[variable]), variable)


def derive_listeners(resolution: Resolution) -> None:
    """Set the listeners of a broker that has only advertised ones: they get the same ports, on all addresses."""
    advertised = resolution.get("advertised.listeners")
    roles = resolution.get("process.roles") or ""
    if advertised is not None and roles.strip() == "controller":
        raise ContainerError(
            "advertised.listeners is not supported on a node that is only a controller",
            resolution.origin("advertised.listeners"),
            "remove it, or add broker to KAFKA_PROCESS_ROLES",
        )
    if advertised is not None and resolution.get("listeners") is None:
        bound = _HOST_OF_LISTENER.sub("://0.0.0.0:", advertised)
        resolution.set("listeners", bound, f"{resolution.origin('advertised.listeners')}, on all addresses")


def check_confluent(environment: Environment) -> None:
    """Check the variables that cp-kafka requires."""
    for old, new in REPLACED_NAMES.items():
        if old in environment:
            raise ContainerError(f"{old} is not supported any more", old, f"use {new} instead")
    # roles are added later, or the configuration is rejected later
    of_zookeepers_time = "KAFKA_ZOOKEEPER_CONNECT" in environment
    for variable in CONFLUENT_REQUIRED:
        if not environment.get(variable) and not of_zookeepers_time:
            raise ContainerError(f"{variable} is required", variable, "set it, for example to broker,controller")
    if environment.get("KAFKA_PROCESS_ROLES") != "controller" and not environment.get("KAFKA_ADVERTISED_LISTENERS"):
        raise ContainerError(
            "KAFKA_ADVERTISED_LISTENERS is required",
            "KAFKA_ADVERTISED_LISTENERS",
            "set it to what clients shall dial, for example PLAINTEXT://kafka:9092",
        )


def set_credentials(environment: Environment, resolution: Resolution, read: ReadFile, folder: str) -> None:
    """Set TLS stores by file name, and their passwords by the names of the files that contain them; all are in the secrets
    folder.
    """
    for variable, name in CREDENTIAL_FILES.items():
        if file_name := environment.get(variable):
            resolution.set(name, f"{folder}/{file_name}", variable)
    for variable, name in CREDENTIAL_CONTENTS.items():
        if file_name := environment.get(variable):
            data = read(f"{folder}/{file_name}")
            if data is None:
                raise ContainerError(f"there is no file {folder}/{file_name}", variable, f"mount it into {folder}")
            resolution.set(name, data.decode("utf-8", "surrogateescape").strip(), f"{variable} ({folder}/{file_name})")


def set_jaas(environment: Environment, resolution: Resolution, read: ReadFile) -> None:
    """Set the properties of listeners with passwords from the JAAS file that the JVM's options name."""
    match = _LOGIN_CONFIG.search(environment.get("KAFKA_OPTS", ""))
    if match is None:
        return
    path = match.group(1).strip("\"'")
    data = read(path)
    if data is None:
        raise ContainerError(f"there is no JAAS file {path}", "KAFKA_OPTS", "mount it there, or take the option out")
    try:
        sections = read_sections(data.decode("utf-8", "replace"))
    except JaasError as error:
        remedy = 'write KafkaServer { <module> required key="value"; };'
        raise ContainerError(f"not a JAAS file: {error}", path, remedy) from None
    protocols = resolution.get("listener.security.protocol.map") or "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    for entry in protocols.split(","):
        listener, _, protocol = (part.strip() for part in entry.partition(":"))
        section = f"{listener.lower()}.{DEFAULT_SECTION}"
        if not protocol.upper().startswith("SASL"):
            continue
        for module in sections.get(section, sections.get(DEFAULT_SECTION, ())):
            for mechanism in module.mechanisms:
                name = f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config"
                resolution.set_default(name, module.text(), f"KAFKA_OPTS ({path})")
