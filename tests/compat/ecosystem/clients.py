"""The third-party clients of the suite `ecosystem`: the source of each, and the program that runs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Client:
    """A client or framework, the packages that bring it, and a program that prints a line for each of its checks."""

    name: str
    version: str
    #: The source: pip, npm, go, or deb (found on the PATH, in the installed version).
    source: str
    packages: tuple[str, ...]
    program: str
    #: The settings that a user needs because the server is Ottla, or a new cluster.
    settings: str = "none"


CLIENTS = (
    Client("kcat", "1.7.1", "deb", ("kcat",), "kcat.py"),
    Client("aiokafka", "0.14.0", "pip", ("aiokafka==0.14.0",), "aiokafka_client.py"),
    Client("confluent-kafka", "2.16.1", "pip", ("confluent-kafka==2.16.1",), "confluent_client.py"),
    Client("kafka-python", "3.0.12", "pip", ("kafka-python==3.0.12",), "kafka_python_client.py"),
    Client("FastStream", "0.7.8", "pip", ("faststream[kafka]==0.7.8",), "faststream_app.py"),
    Client("faust-streaming", "0.15.3", "pip", ("faust-streaming==0.15.3",), "faust_app.py"),
    Client("quixstreams", "3.28.1", "pip", ("quixstreams==3.28.1",), "quixstreams_app.py"),
    Client("bytewax", "0.21.1", "pip", ("bytewax[kafka]==0.21.1",), "bytewax_flow.py"),
    Client("sentry-arroyo", "2.42.2", "pip", ("sentry-arroyo==2.42.2",), "arroyo_client.py"),
    Client("kafkajs", "2.2.4", "npm", ("kafkajs@2.2.4",), "kafkajs_client.mjs"),
    Client("@platformatic/kafka", "2.9.0", "npm", ("@platformatic/kafka@2.9.0",), "platformatic_client.mjs"),
    Client("IBM/sarama", "1.61.1", "go", ("github.com/IBM/sarama@v1.61.1",), "sarama_client.go"),
    Client("segmentio/kafka-go", "0.4.51", "go", ("github.com/segmentio/kafka-go@v0.4.51",), "kafka_go_client.go"),
    Client("franz-go", "1.21.0", "go", ("github.com/twmb/franz-go@v1.21.0",), "franz_go_client.go"),
)
