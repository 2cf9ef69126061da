"""The options of the table `schema`, by the names that users of Confluent's deserializers, ABRiS and from_avro know.

It has no I/O.
"""

from __future__ import annotations

from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions

URL = "schema.registry.url"
SOURCE, LOGIN = "basic.auth.credentials.source", "basic.auth.user.info"
CONFIG = "schema.registry.config"
CA_FILE = "schema.registry.ssl.truststore.location"
LATEST = "latest"
MODES = ("FAILFAST", "PERMISSIVE")


class SchemaOptions:
    """The registry, the schemas of columns, and what happens to records that cannot be decoded.

    Raises ConnectorError for an option that is missing or wrong.
    """

    def __init__(self, options: ConnectorOptions) -> None:
        self._options = options
        url = options.get(URL)
        if not url:
            raise ConnectorError(
                f"option {URL} is missing", "give the address of the schema registry: http://HOST:8081"
            )
        self.url = url
        self.user, self.password = self._login()
        self.ca_file = options.get(CA_FILE)
        #: A file with the login, so that no command and no plan of a query contains it.
        self.config = options.get(CONFIG)
        if self.config and (self.user is not None or self.ca_file):
            raise ConnectorError(f"option {CONFIG} excludes {LOGIN} and {CA_FILE}", "the file has both")
        mode = (options.get("mode") or MODES[0]).upper()
        if mode not in MODES:
            raise ConnectorError(f"option mode is {mode}", f"the table schema has {' and '.join(MODES)}, as from_avro")
        self.is_strict = mode == MODES[0]
        #: Subject and version by column. A key is decoded only if one of its options is given; otherwise it stays BINARY.
        self.subjects = {"value": self._subject("value")}
        if options.get("keySubject") or options.get("keyVersion"):
            self.subjects["key"] = self._subject("key")
        for name in options.fields:
            if name not in self.subjects:
                raise ConnectorError(
                    f"option columns has fields of {name}, which is not decoded", "give keyVersion or keySubject"
                )

    def _login(self) -> tuple[str | None, str | None]:
        login = self._options.get(LOGIN)
        source = (self._options.get(SOURCE) or ("URL" if login is None else "USER_INFO")).upper()
        if source not in ("URL", "USER_INFO"):
            raise ConnectorError(f"option {SOURCE} is {source}", "it is URL or USER_INFO")
        if source == "URL":
            return None, None
        user, colon, password = (login or "").partition(":")
        if not colon:
            raise ConnectorError(f"option {LOGIN} is missing, or has no colon", "it is USER:PASSWORD")
        return user, password

    def _subject(self, column: str) -> tuple[str, int | str]:
        subject = self._options.get(f"{column}Subject") or f"{self._topic(column)}-{column}"
        version = (self._options.get(f"{column}Version") or LATEST).lower()
        if version == LATEST:
            return subject, LATEST
        if not version.isdigit() or int(version) < 1:
            raise ConnectorError(f"option {column}Version is {version}", f"it is {LATEST} or a number above 0")
        return subject, int(version)

    def _topic(self, column: str) -> str:
        """Return the topic that gives the subject its name (Confluent's TopicNameStrategy)."""
        options = self._options
        topics = set()
        if options.selection == "subscribe":
            topics = {*options.selected}
        elif options.selection == "assign":
            topics = {topic for topic, _ in options.selected}
        if len(topics) != 1:
            raise ConnectorError(f"option {column}Subject is missing", "it is needed unless one topic is read")
        return str(topics.pop())
