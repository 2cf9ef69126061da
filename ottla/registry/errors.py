"""Errors of the registry. They have Confluent's codes and messages, by which its clients recognize them."""

from __future__ import annotations

from typing import NamedTuple


class _Row(NamedTuple):
    code: int
    text: str


#: Error codes with five digits begin with the HTTP status.
ERRORS = {
    "subject": _Row(40401, "Subject '{}' not found."),
    "version": _Row(40402, "Version {} not found."),
    "schema": _Row(40403, "Schema not found"),
    "schema_id": _Row(40403, "Schema {} not found"),
    "subject_soft_deleted": _Row(40404, "Subject '{}' was soft deleted.Set permanent=true to delete permanently"),
    "subject_not_soft_deleted": _Row(40405, "Subject '{}' was not deleted first before being permanently deleted"),
    "version_soft_deleted": _Row(
        40406, "Subject '{}' Version {} was soft deleted.Set permanent=true to delete permanently"
    ),
    "version_not_soft_deleted": _Row(
        40407, "Subject '{}' Version {} was not deleted first before being permanently deleted"
    ),
    "config": _Row(40408, "Subject '{}' does not have subject-level compatibility configured"),
    "mode": _Row(40409, "Subject '{}' does not have subject-level mode configured"),
    "unauthorized": _Row(401, "Unauthorized"),
    "denied": _Row(40301, "User is denied operation {} on Subject: {}"),
    "denied_globally": _Row(40301, "User is denied operation {} on this server."),
    "no_such_path": _Row(404, "HTTP 404 Not Found"),
    "method": _Row(405, "HTTP 405 Method Not Allowed"),
    "body": _Row(400, "Unable to parse the JSON of the request: {}"),
    "too_long": _Row(413, "The request has more than {} bytes"),
    "incompatible": _Row(
        40901, 'Schema being registered is incompatible with an earlier schema for subject "{}", details: {}'
    ),
    "invalid_schema": _Row(42201, "{}"),
    "invalid_version": _Row(
        42202,
        "The specified version '{}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string \"latest\"",
    ),
    "invalid_level": _Row(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    ),
    "invalid_mode": _Row(
        42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD."
    ),
    "not_permitted": _Row(42205, "{}"),
    "referenced": _Row(42206, "One or more references exist to the schema {}."),
    "id_differs": _Row(42207, "{}"),
    "invalid_subject": _Row(42208, "The specified subject '{}' is not a valid."),
    "too_large": _Row(42209, "Register operation failed because schema is too large"),
    "busy": _Row(42901, "Too many schemas of the same user wait to be checked"),
    "store": _Row(50001, "{}"),
    "timeout": _Row(50002, "{}"),
    "forwarding": _Row(50003, "{}"),
    "no_leader": _Row(50004, "Leader not known."),
}


class RegistryError(Exception):
    """The response to a request is an error. `code` is Confluent's error code, which begins with the HTTP status."""

    def __init__(self, name: str, *values: object) -> None:
        row = ERRORS[name]
        self.code = row.code
        self.message = row.text.format(*values)
        super().__init__(self.message)

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100
