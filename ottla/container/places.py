"""The paths of the images. Users mount files and volumes there, so they are an interface."""

from __future__ import annotations

from typing import NamedTuple


class Places(NamedTuple):
    """The paths of one image."""

    #: A server.properties that the user mounted.
    properties: str
    data: str
    secrets: str


APACHE = Places("/mnt/shared/config/server.properties", "/var/lib/kafka/data", "/etc/kafka/secrets")
CONFLUENT = Places("/mnt/shared/config/server.properties", "/var/lib/kafka/data", "/etc/kafka/secrets")
BITNAMI = Places("/bitnami/kafka/config/server.properties", "/bitnami/kafka/data", "/opt/bitnami/kafka/config/certs")
#: Where bitnami's users mount certificates when they do not mount over `secrets`.
BITNAMI_MOUNTED_CERTIFICATES = "/bitnami/kafka/config/certs"
#: `configure` writes it and `launch` reads it; users like testcontainers run a step of their own between the two.
CONFIGURED = "/etc/kafka/kafka.properties"
CONFIGURED_CLUSTER_ID = "/etc/kafka/cluster.id"
