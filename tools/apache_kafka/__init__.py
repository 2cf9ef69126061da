"""A real Apache Kafka 4.3.1 to compare with: jars by Maven, nodes on loopback, and its command-line tools.

It is the oracle of golden tests, the peer of benchmarks, and has the tools of users. It needs a JDK 17+ and Maven; `missing()`
returns the reason if they are missing, with which tests are skipped. The jars (about 100 MB) are fetched once into the user's
cache.
"""

from tools.apache_kafka.jars import OLDEST, VERSION, OracleUnavailable, classpath, missing
from tools.apache_kafka.node import ApacheKafka
from tools.apache_kafka.programs import START_SCRIPT_JVM, TOOLS, java_command, run_java, run_tool
from tools.apache_kafka.session import ToolSession

__all__ = [
    "OLDEST",
    "START_SCRIPT_JVM",
    "TOOLS",
    "VERSION",
    "ApacheKafka",
    "OracleUnavailable",
    "ToolSession",
    "classpath",
    "java_command",
    "missing",
    "run_java",
    "run_tool",
]
