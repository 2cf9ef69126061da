"""The Spark session: the requirements, the connector's jars, and this package's code on the executors.

Under spark-submit the master and the jars are those of its command line; only what is not given there comes from the
configuration.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipeline import delta
from ottla.pipeline.config import OTTLA, Config
from ottla.pipeline.connector_modules import needed_files
from ottla.pipeline.errors import PipelineError
from ottla.server.installation import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).resolve().parent
#: The Java releases for pyspark 4.0. Its other requirements are checked before a JVM is started.
NEEDED_MODULES = ("pyspark", "pyarrow", "pandas", "fastavro", "confluent_kafka")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOGGING = PACKAGE / "log4j2.properties"
LOOPBACK = "127.0.0.1"
#: Options that are set unless the configuration sets them.
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # dates of partitions and windows are the same on every machine
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def missing() -> str | None:
    """Return the missing requirement of Spark with its remedy, or None."""
    for module in NEEDED_MODULES:
        if importlib.util.find_spec(module) is None:
            return f"the Python package {module} is missing; install it: {install('pipeline')}"
    if java() is None:
        return "Spark needs Java 17 or newer and there is no `java` on the PATH and no JAVA_HOME; install it (Debian: apt install openjdk-17-jre-headless)"
    return None


def java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def jars_folder(config: Config) -> Path | None:
    """Return the folder with connector jars: the given one, or the one beside this package (in a source tree)."""
    for folder in (Path(config.spark.jars), PACKAGE.parent / config.spark.jars):
        if config.spark.jars and any(folder.glob("spark-sql-kafka-0-10_*.jar")):
            return folder.absolute()
    return None


def jar_settings(config: Config) -> dict[str, str]:
    """Return the setting `spark.jars` from the folder, if its jars are for the installed Spark.

    Otherwise Spark downloads the connector for its version.
    """
    import pyspark

    version = pyspark.__version__
    folder = jars_folder(config)
    if folder is not None:
        if not any(folder.glob(f"spark-sql-kafka-0-10_*-{version}.jar")):
            raise PipelineError(
                f"the connector in {folder} is not for the installed pyspark {version}",
                remedy=f"make spark-jars SPARK_VERSION={version}, or empty the folder to let Spark fetch it",
            )
        return {"spark.jars": ",".join(sorted(str(jar) for jar in folder.glob("*.jar")))}
    return {"spark.jars.packages": f"{CONNECTOR}:{version}"}


def start(config: Config) -> SparkSession:
    """Return the session: a new one, or the one that spark-submit has prepared. End with a clear message if there can be none."""
    problem = missing()
    if problem:
        what, _, remedy = problem.partition("; ")
        raise PipelineError(what, remedy=remedy)
    from pyspark.sql import SparkSession

    submitted = is_submitted()
    builder = SparkSession.builder.appName(config.spark.app_name)
    own = {} if submitted else own_settings(config)
    settings = {
        **DEFAULTS,
        "spark.sql.shuffle.partitions": str(config.spark.shuffle_partitions),
        **own,
        **(delta.SETTINGS if uses_delta(config) else {}),
        **config.spark.options,
        **{name: value for name, value in own.items() if name == JAVA_OPTIONS},  # it has what is given there
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # PySparkRuntimeError if the JVM ends at once
        raise PipelineError(
            f"Spark did not start: {str(error).strip().splitlines()[0][:300]}",
            remedy="its own lines above show why: most often an unreachable registry for the connector (make spark-jars) or a Java that is too old",
        ) from None
    if submitted:
        spark.sparkContext.setLogLevel("ERROR")  # otherwise it logs to a file, see log4j2.properties
    send_package(spark)
    if config.source.connector == OTTLA:
        from ottla.spark import register

        register(spark)
    return spark


def is_submitted() -> bool:
    """Return whether this runs under spark-submit: then the JVM exists already, with its master and its jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def uses_delta(config: Config) -> bool:
    """Return whether new tables of gold are Delta tables. Raises PipelineError if they must be, but cannot."""
    wanted = config.pipeline.upsert_format
    usable = delta.is_usable(jars_folder(config))
    if wanted == "delta" and not usable and not is_submitted():
        raise PipelineError(
            "pipeline.upsert_format is delta, and delta-spark of this pyspark's version or its jars are missing",
            remedy="pip install 'delta-spark==4.0.*' and make delta-jars, or leave the setting out",
        )
    return wanted == "delta" or (not wanted and usable and not is_submitted())


def own_settings(config: Config) -> dict[str, str]:
    """Return the options of a spark-submit command line."""
    log = Path(config.path("spark.log"))
    log.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "spark.master": config.spark.master,
        "spark.driver.memory": config.spark.driver_memory,
        JAVA_OPTIONS: f'-Dlog4j2.configurationFile="{LOGGING}" -Dottla.pipeline.log="{log}" {config.spark.options.get(JAVA_OPTIONS, "")}',
        **jar_settings(config),
    }
    if config.spark.master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need the packages that are installed here
        # Everything runs on one machine, whose host name may not be resolvable.
        found |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return found


def send_package(spark: SparkSession) -> None:
    """Send this package and the connector to the executors as a zip, because they run its functions, whether or not it is
    installed there.
    """
    context = spark.sparkContext
    if any(file.endswith("/pipeline.zip") for file in context.listFiles):
        return  # the session is shared, and Spark rejects a changed file
    folder = tempfile.mkdtemp(prefix="ottla-pipeline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors fetch it when they get their first task
    archive = Path(folder) / "pipeline.zip"
    with zipfile.ZipFile(archive, "w") as target:
        files = {*PACKAGE.rglob("*.py"), *needed_files().values()}
        for file in sorted(files):
            target.write(file, file.relative_to(PACKAGE.parents[1]))
    context.addPyFile(str(archive))


def stop() -> None:
    """End the session, after its listeners have received all events: otherwise they log errors about the ended Python."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is not None:
            spark.stop()
