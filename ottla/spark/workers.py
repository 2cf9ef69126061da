"""The processes that Spark starts: their Python must have the same packages, and they need this package if it came as a wheel
by --py-files.

Spark starts what PYSPARK_PYTHON names, and otherwise `python3` of the PATH. If a job is called as `venv/bin/python job.py`,
from a shell that has not activated the environment, that is another Python, and a worker ends with "No module named 'pyarrow'"
from a folder that the user has never seen.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A Python that does not report its packages within this time is not asked again.
ANSWER_S = 10
_PREFIX = "import sys; print(sys.prefix)"


def other_python(executable: str, prefix: str = sys.prefix) -> str | None:
    """Return what is wrong with the Python that Spark starts.

    Return None if its packages are those of `prefix`, or if it does not report them.

    Args:
        executable: as Spark has it (SparkContext.pythonExec): a path, or a name that is looked up on the PATH.
    """
    found = shutil.which(executable)
    if found is None:  # the path may be on other machines; if it is wrong, Spark itself reports it
        return None
    try:
        asked = subprocess.run([found, "-c", _PREFIX], capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    theirs = asked.stdout.strip()
    if asked.returncode or theirs == prefix:
        return None
    return (
        f"Spark starts {found}, whose packages are in {theirs}, and this session's are in {prefix}: if a package is missing there, set"
        f" the variable PYSPARK_PYTHON to {sys.executable} before the session is made"
    )


def send_wheel(spark: SparkSession) -> None:
    """If this package is imported from a wheel, send the wheel once more under a name that Spark accepts.

    Spark copies all files of --py-files to executors, and puts those that are named .zip and .egg on their path: but not
    wheels. In pyspark 4.0 the process in which the driver asks a stream for its offsets gets none of the files, so PYTHONPATH
    names the wheel for it.
    """
    wheel = next((each for each in Path(__file__).parents if each.suffix == ".whl" and each.is_file()), None)
    if wheel is None:
        return
    context, name = spark.sparkContext, f"{wheel.stem}.zip"
    if not any(file.endswith(f"/{name}") for file in context.listFiles):
        folder = tempfile.mkdtemp(prefix="ottla-spark-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors fetch it when they get their first task
        shutil.copy(wheel, Path(folder) / name)
        context.addPyFile(str(Path(folder) / name))
        given = context.environment.get("PYTHONPATH")
        context.environment["PYTHONPATH"] = f"{wheel}{os.pathsep}{given}" if given else str(wheel)
