"""Settings: what a user can get wrong in the file and on the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("fastavro")

from ottla.pipeline.backfill import epoch_ms, ranged
from ottla.pipeline.config import Config, documented, load
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.main import main
from ottla.pipeline.source import options


def written(folder: Path, text: str) -> str:
    (folder / "pipeline.toml").write_text(text)
    return str(folder / "pipeline.toml")


def test_the_documented_file_is_the_default(tmp_path: Path) -> None:
    text = "\n".join(documented())
    assert tomllib.loads(text)
    assert load(written(tmp_path, text)) == Config()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[kafka]\nbootstrap_servers = "a:1"\n[pipeline]\nwindow_seconds = 5\n')
    config = load(path, ("kafka.bootstrap_servers=b:2", "kafka.options.security.protocol=SSL"))
    assert (config.kafka.bootstrap_servers, config.pipeline.window_seconds) == ("b:2", 5)
    assert config.kafka.options == {"security.protocol": "SSL"}


def test_offsets_may_be_written_as_toml_tables(tmp_path: Path) -> None:
    config = load(written(tmp_path, "[source]\nassign = {events = [0, 1]}\nfail_on_data_loss = false\n"))
    assert options(config)["assign"] == '{"events": [0, 1]}'
    assert options(config)["failOnDataLoss"] == "false"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[kafka]\nbootstrap_server = 'a:1'", "did you mean bootstrap_servers"),
        ("[kafak]\nx = 1", "did you mean kafka"),
        ("x = 1", "outside a section"),
        ("[kafka", "not TOML"),
        ("[pipeline]\nwindow_seconds = 'ten'", "not of type int"),
        ("[pipeline]\nwindow_seconds = 0", "must be 1 or more"),
        ("[source]\nfail_on_data_loss = 'perhaps'", "not of type bool"),
        ("[pipeline]\ntrigger = 'often'", "not a duration"),
        ("[pipeline]\nwatermark = '1 minute'", "without a dead letter"),
        ("[source]\nassign = 'events:0'", "not JSON"),
        ("[source]\nassign = {events = 0}", "names no partitions"),
        ("[source]\nstarting_offsets = 'beginning'", "not JSON"),
        ("[source]\nstarting_offsets = {events = 7}", "no number for each partition"),
        ("[source]\nending_offsets_by_timestamp = '[1]'", "names no topics"),
        ("[source]\nstarting_offsets_by_timestamp_strategy = 'earliest'", "error or latest"),
        ("[kafka]\noptions = 3", "must be a table"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        load(written(tmp_path, text))


def test_a_missing_file_and_a_malformed_override_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(PipelineError, match="section"):
        load(None, ("window=5",))


def test_what_spark_forbids_is_refused_before_it_starts() -> None:
    with pytest.raises(PipelineError, match=r"enable\.auto\.commit"):
        options(load(None, ("kafka.options.enable.auto.commit=true",)))
    with pytest.raises(PipelineError, match="a stream has no end"):
        options(load(None, ("source.ending_offsets=latest",)))
    with pytest.raises(PipelineError, match="cannot start at latest"):
        options(load(None, ("source.starting_offsets=latest",)), batch=True)


def test_a_pattern_wins_over_a_list_and_partitions_over_both() -> None:
    both = ("source.subscribe=a,b", "source.subscribe_pattern=a.*")
    assert options(load(None, both))["subscribePattern"] == "a.*"
    found = options(load(None, (*both, 'source.assign={"a":[0]}')))
    assert found["assign"] == '{"a":[0]}' and "subscribe" not in found and "subscribePattern" not in found


def test_the_brokers_table_is_one_topics_in_a_folder_and_has_no_bronze_stage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(PipelineError, match=r"ottla\.table\.location"):
        load(None, ("source.connector=table",))
    given = ("source.tables=/lake", "source.connector=table")
    with pytest.raises(PipelineError, match=r"kafka\.events"):
        load(None, (*given, "source.subscribe=a,b"))
    with pytest.raises(PipelineError, match="kafka, ottla, table"):
        load(None, ("source.connector=csv",))
    with pytest.raises(SystemExit):
        main(["run", "bronze", *(word for each in given for word in ("--set", each))])
    assert "run silver, gold or all" in capsys.readouterr().err


def test_a_backfill_is_given_offsets_or_times() -> None:
    assert epoch_ms("2026-01-31T12:00:00") == epoch_ms("2026-01-31T13:00:00+01:00") == 1769860800000
    found = options(ranged(Config(), "2026-01-31T12:00:00", '{"events":{"0":7}}'), batch=True)
    assert found["startingTimestamp"] == "1769860800000"
    assert found["endingOffsets"] == '{"events":{"0":7}}'
    with pytest.raises(PipelineError, match="no place in a topic"):
        ranged(Config(), "yesterday", "latest")
