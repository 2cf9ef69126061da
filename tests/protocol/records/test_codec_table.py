"""A codec is one row: every table, check, tool and command knows one that is added to it."""

from __future__ import annotations

import subprocess
import sys

#: A separate process, in which the table has one more row before anything else is imported.
PROGRAM = """
from ottla.protocol.records import compression
from ottla.storage import log_config

added = compression.Codec(
    "brotli", compression.CODECS[1].compress, compression.CODECS[1].decompress, 9_000,
    level_default=4, level_min=1, level_max=11, produce_since=9, telemetry_rank=9, needs_look=True,
)
source = open(compression.__file__).read()
end = source.index("CODEC_IDS = ")
compression.CODECS = (*compression.CODECS, added)
exec(compile(source[end:], compression.__file__, "exec"), vars(compression))

from importlib import reload
import ottla.protocol.records.validate as validate
from ottla.protocol.slotted import frozen
from ottla.protocol.records import builder
reload(validate)
made = log_config.LogConfig
class LogConfig(made):
    compression_brotli_level: "int" = added.level_default
log_config.LogConfig = frozen(LogConfig)
log_config.CODECS, log_config.TARGET_CODECS = compression.CODECS, compression.TARGET_CODECS

from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.resource_configs import TOPIC_CONFIGS, check_topic_configs
for table in (BROKER_CONFIGS, TOPIC_CONFIGS):
    assert table["compression.type"].parse("brotli") == "brotli"
    key = table["compression.brotli.level"]
    assert (key.default, key.parse("11")) == (4, 11)
    try:
        key.parse("12")
    except Exception as fault:
        assert "11" in str(fault)
    else:
        raise AssertionError("12 is no level of it")
rules = log_config.LogConfig(compression_type="brotli").record_rules()
assert (rules.codec, rules.level) == (5, 4)
assert 5 in validate._USUAL_ATTRIBUTES or added.needs_look
assert validate.EXPANSION_MAX[5] == 9_000
assert compression.decompress(5, memoryview(compression.compress(5, b"x" * 100))) == b"x" * 100
from ottla.broker.api.telemetry import COMPRESSION_TYPES
assert COMPRESSION_TYPES == [4, 3, 1, 2, 5]
from ottla.broker.produce import append
assert append.ALL_CODECS_SINCE == 9
from ottla.cli.commands import perf, produce, topic_copy
for command in (produce, perf, topic_copy):
    assert "brotli" in compression.CodecName.__args__
from ottla.cli.shims import console_producer
assert "brotli" in console_producer.CODEC_IDS
from ottla.cli.dump import CODECS
assert CODECS[5].name == "brotli"
"""


def test_a_codec_that_is_added_to_the_table_is_known_everywhere() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
