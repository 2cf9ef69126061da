"""JAAS files, in which older broker configurations have their SASL users.

A section is converted into the equivalent property (`listener.name.<listener>.<mechanism>.sasl.jaas.config`).
"""

from __future__ import annotations

from ottla.container.settings import ContainerError
from ottla.server.sasl.jaas import JaasError, LoginModule, read_sections

DEFAULT_SECTION = "KafkaServer"


def read_jaas(text: str, where: str) -> dict[str, list[LoginModule]]:
    """Return the modules of every section."""
    try:
        return read_sections(text)
    except JaasError as error:
        raise ContainerError(
            f"not a JAAS file: {error}", where, 'write KafkaServer { <module> required key="value"; };'
        ) from None
