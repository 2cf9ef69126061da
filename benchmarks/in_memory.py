"""franz-go's kfake, a broker in memory that is compiled, where Go is there: it is fetched as a Go module and built once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.servers import NULL_PORT, NullServer

SOURCE = Path(__file__).parent / "kfake"
BINARY = Path(".bench/kfake").absolute()
BUILD_SECONDS_MAX = 400


def missing() -> str | None:
    """Build the program if necessary; return the reason if it cannot be built."""
    if shutil.which("go") is None:
        return "Go is not installed"
    if BINARY.exists() and BINARY.stat().st_mtime > max(file.stat().st_mtime for file in SOURCE.iterdir()):
        return None
    command = ["go", "build", "-o", str(BINARY), "."]
    try:
        subprocess.run(command, cwd=SOURCE, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX)
    except subprocess.CalledProcessError as failure:
        return f"go build failed: {failure.stderr[-300:]}"
    except subprocess.TimeoutExpired:
        return "go build takes too long"
    return None


def kfake() -> NullServer:
    """Return a server with the topic "t" of three partitions."""
    return NullServer([str(BINARY), str(NULL_PORT)])
