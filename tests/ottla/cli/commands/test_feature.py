"""`ottla feature` and `ottla token` against a node."""

from __future__ import annotations

import json

from ottla.cli.errors import FAILED, USAGE
from ottla.protocol.releases import METADATA_VERSION
from tests.ottla.cli.commands.conftest import Run


def test_features_have_a_level_and_the_supported_range(here: Run) -> None:
    done = here("feature", "list", "-o", "json")
    rows = {row["feature"]: row for row in map(json.loads, done.out.splitlines())}
    assert rows[METADATA_VERSION]["level"].partition("-")[0].count(".") == 1
    assert rows["group.version"] == {"feature": "group.version", "level": "1", "lowest": "0", "highest": "1"} | {
        "epoch": rows["group.version"]["epoch"]
    }


def test_a_level_is_checked_and_a_dry_run_changes_nothing(here: Run) -> None:
    lower = here("feature", "downgrade", "group.version=0", "--dry-run")
    assert lower.code == 0 and "group.version 1 -> 0 would be changed" in lower.err
    assert '"level": "1"' in next(
        row for row in here("feature", "list", "-o", "json").out.splitlines() if "group" in row
    )
    refused = here("feature", "upgrade", "group.version=9")
    assert refused.code == FAILED and "INVALID_UPDATE_VERSION" in refused.err
    unknown = here("feature", "upgrade", "group.versoin=1")
    assert unknown.code == USAGE and "did you mean 'group.version'" in unknown.err
    assert here("feature", "upgrade", f"{METADATA_VERSION}=soon").code == USAGE


def test_tokens_are_refused_with_the_reason_where_they_are_not_enabled(here: Run) -> None:
    for words in (["list"], ["create"], ["renew", "aGk="], ["expire", "aGk="]):
        refused = here("token", *words)
        assert refused.code == FAILED and "DELEGATION_TOKEN" in refused.err and "\n  " in refused.err
    assert here("token", "renew", "no base64").code == USAGE
