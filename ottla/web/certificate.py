"""The certificate of an HTTP server, which is replaced while it runs: who renews it need not restart a registry or a console."""

from __future__ import annotations

import logging
import os
import ssl

log = logging.getLogger(__name__)

#: The interval of trying a renewed certificate again that could not be used: its rights may be mended, which the files may not show.
RETRY_S = 5.0
#: The interval of the log line while it cannot be used.
REPEAT_S = 600.0


class ServedCertificate:
    """The TLS context of files of PEM. New connections get the context of the newest files that could be used."""

    def __init__(self, certificate: str, key: str | None) -> None:
        """Read the files.

        Raises:
            OSError: they cannot be read, or do not belong together.
        """
        self._certificate, self._key = certificate, key
        self._states = self._files()
        self.context = self._load()
        self._rejection: str | None = None
        self._retry_s = self._repeat_s = 0.0

    def look(self, now_s: float) -> None:
        """Take changed files. The certificate stays as it is while they cannot be used, and they are tried again."""
        states = self._files()
        if states == self._states and (self._rejection is None or now_s < self._retry_s):
            return
        # The states of the files that are tried now. A file that is replaced meanwhile is another change.
        self._states = states
        try:
            self.context = self._load()
        except OSError as failure:
            self._reject(str(failure), now_s)
            return
        self._rejection = None
        log.info("The certificate of %s has been replaced: its files have changed", self._certificate)

    def _reject(self, why: str, now_s: float) -> None:
        self._retry_s = now_s + RETRY_S
        if why != self._rejection or now_s >= self._repeat_s:
            log.error(
                "The certificate of %s stays as it is: %s. Check the files and their rights", self._certificate, why
            )
            self._repeat_s = now_s + REPEAT_S
        self._rejection = why

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key with a password would be asked for at the terminal, on which the server's event loop would wait.
        context.load_cert_chain(self._certificate, self._key, password=_no_password)
        return context

    def _files(self) -> list[tuple[int, int]]:
        """Return the time of the last change, rights included, and the size of each file; -1 of one that cannot be looked at."""
        states = []
        for path in (self._certificate, self._key):
            try:
                found = None if path is None else os.stat(path)
            except OSError:
                found = None
            states.append((-1, -1) if found is None else (found.st_ctime_ns, found.st_size))
        return states


def _no_password() -> str:
    return ""
