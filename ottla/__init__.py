"""Ottla: a Kafka-protocol cluster in Python."""

#: The only place of the version: pyproject.toml reads it here.
__version__ = "0.1.0"
#: The address of the repository, such as https://github.com/OWNER/ottla. While it is empty nothing links to it: neither the
#: metadata of the package, whose hook (hatch_build.py) reads it here, nor the pages.
REPOSITORY = ""
#: Whether the package index has this project by its name. Until then a remedy must not say `pip install ottla`: the name is
#: anybody's. docs/RELEASING.md says when it becomes true.
IS_ON_INDEX = False
