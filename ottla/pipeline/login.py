"""The login of the pipeline: a file of client properties as Kafka's own tools take it (`--command-config`).

Spark uses Java's clients, which take the properties as they are. Topics, the generator and the reports use librdkafka, which
has other names for keys and logins: `for_librdkafka` translates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ottla.pipeline.errors import PipelineError

#: This variable names a file of client properties if the command line does not, as for the command `ottla`.
VARIABLE = "OTTLA_CONFIG"
BOOTSTRAP = "bootstrap.servers"
WITH_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: Properties of Java's clients that librdkafka rejects. Those that it needs are translated.
JAVA_ONLY = frozenset(
    (
        "max.poll.records", "isolation.level", "sasl.jaas.config", "sasl.client.callback.handler.class", "sasl.login.class",
        "sasl.login.callback.handler.class", "ssl.enabled.protocols", "ssl.engine.factory.class", "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.type", "ssl.protocol", "ssl.provider",
        "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.location",
        "ssl.truststore.password", "ssl.truststore.type",
    )
)  # fmt: skip
SECRET = re.compile(r"(?:password|secret|jaas\.config|keystore\.key|key\.pem)$")
HIDDEN = "[hidden]"
#: An option of a JAAS entry: name="value" with backslash escapes, or name=value.
_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


def read(path: str) -> dict[str, str]:
    import javaproperties  # imported late: pipeline.toml alone does not need it

    try:
        return dict(javaproperties.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise PipelineError(
            f"cannot read {path}: {error.strerror}", remedy=f"check --config, and the variable {VARIABLE}"
        ) from None
    except ValueError as error:
        raise PipelineError(
            f"{path} is not a file of client properties: {error}", remedy="it has a name=value on each line, in UTF-8"
        ) from None


def for_librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """Return the same connection under librdkafka's names. librdkafka's own names may be among the options, and win."""
    plain = {name: value for name, value in options.items() if name not in JAVA_ONLY}
    if "ssl.key.location" in (key := _key(options)):
        del plain["ssl.keystore.location"]  # librdkafka always takes it as a PKCS12 file
    algorithm = "ssl.endpoint.identification.algorithm"
    if algorithm in plain:
        plain[algorithm] = plain[algorithm].lower() or "none"
    return {**_trusted(options), **key, **_password(options), **plain}


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without secrets, for printing."""
    return {name: HIDDEN if SECRET.search(name) else value for name, value in options.items()}


def _trusted(options: Mapping[str, str]) -> dict[str, str]:
    if certificates := options.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": certificates}
    location = options.get("ssl.truststore.location")
    if not location or "ssl.ca.location" in options:
        return {}
    if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise PipelineError(
            f"librdkafka cannot read the trust store {location}",
            remedy=f"write it as PEM (keytool -exportcert -rfc -keystore {location} -alias NAME -file ca.pem) and set "
            "ssl.truststore.type=PEM with that file, or ssl.ca.location beside it",
        )
    return {"ssl.ca.location": location}


def _key(options: Mapping[str, str]) -> dict[str, str]:
    if "ssl.keystore.key" in options:
        chain = options.get("ssl.keystore.certificate.chain", "")
        return {"ssl.key.pem": options["ssl.keystore.key"], "ssl.certificate.pem": chain}
    location, kind = options.get("ssl.keystore.location"), options.get("ssl.keystore.type", "JKS").upper()
    if location and kind == "PEM":
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if location and kind != "PKCS12" and "ssl.key.location" not in options:
        raise PipelineError(
            f"librdkafka cannot read the key store {location}",
            remedy="convert it (keytool -importkeystore -deststoretype PKCS12) and set ssl.keystore.type=PKCS12",
        )
    return {}


def _password(options: Mapping[str, str]) -> dict[str, str]:
    text = options.get("sasl.jaas.config")
    if text is None or options.get("sasl.mechanism", "").upper() not in WITH_PASSWORDS or "sasl.username" in options:
        return {}
    found = {name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for name, quoted, bare in _OPTION.findall(text)}
    for name in ("username", "password"):
        if name not in found:
            raise PipelineError(
                f"sasl.jaas.config has no {name}",
                remedy='write ...LoginModule required username="..." password="...";',
            )
    if found.get("tokenauth", "").lower() == "true":
        raise PipelineError(
            "librdkafka cannot log in with a delegation token",
            remedy="give the user's own password in sasl.jaas.config",
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}
