"""One target in one process under libFuzzer, by atheris: inputs that reach new code are kept and changed further.

The product is instrumented when it is imported, the codecs when they are generated. `judge.Judge` catches every exception, so
libFuzzer goes on; only a crash of the interpreter itself, or a loop inside of an extension, ends it with an input of its own.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from importlib import import_module, util
from io import StringIO
from pathlib import Path
from typing import Any

from tests.fuzz.judge import APART, PRODUCT, Finding, Judge, short_name
from tests.fuzz.target import Target

TARGETS = "tests.fuzz.targets"
#: These modules read declarations, not inputs.
GENERATORS = [f"protocol.{name}" for name in ("compile", "decoding", "encoding", "ranges", "schema", "source")]
#: libFuzzer's own limits, far above those of the judge: for calls that the judge cannot interrupt.
HANG_S = 25
RSS_MB_MAX = 2048


def can_guide() -> bool:
    """Return whether atheris is installed: some platforms and the newest versions of Python do not have it."""
    return util.find_spec("atheris") is not None


def guided_targets() -> dict[str, Target]:
    """Return the targets, with a product that reports its coverage. No part of the product may be imported before."""
    assert TARGETS not in sys.modules
    import atheris
    from atheris.instrument_bytecode import patch_code

    imports = atheris.instrument_imports(include=list(PRODUCT), exclude=GENERATORS, enable_loader_override=False)
    with redirect_stderr(StringIO()), imports:
        targets: dict[str, Target] = import_module(TARGETS).TARGETS
        codecs: Any = import_module("ottla.protocol.compile")
    generate = codecs._compile

    def guided(what: str, *arguments: Any) -> Any:
        with APART:
            function = generate(what, *arguments)
            if what == "decode":
                # Only branches are instrumented: comparisons, too, would take three times as long, and there are hundreds of
                # decoders. Encoders need no guidance: they only get decoded objects.
                function.__code__ = patch_code(function.__code__, trace_dataflow=False)
            return function

    codecs._compile = guided
    return targets


def plain_targets() -> dict[str, Target]:
    """Return the targets without instrumentation, to run single inputs."""
    targets: dict[str, Target] = import_module(TARGETS).TARGETS
    return targets


def fuzz(
    target: Target, folder: Path, inputs: Iterable[Path], flags: list[str], found: Callable[[Finding], None]
) -> None:
    """Fuzz until the flags say to stop; then the process ends. New inputs are kept in `folder`."""
    import atheris

    judge = Judge(target, found)
    program = [
        target.name,
        f"-max_len={target.bytes_max}",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={RSS_MB_MAX}",
        "-print_final_stats=1",
        f"-artifact_prefix={folder}/died-",
        *flags,
        str(folder / "corpus"),
        *map(str, inputs),
    ]
    atheris.Setup(program, judge)
    judge.watch()
    atheris.Fuzz()


def in_child(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a fork whose output goes to a file. Return its process id."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    try:
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def write_inputs(folder: Path, inputs: Iterable[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / short_name(data)).write_bytes(data)
    return folder
