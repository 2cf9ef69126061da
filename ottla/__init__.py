"""Ottla: a Kafka-protocol cluster in Python."""

#: The version stands only here: pyproject.toml reads it from this file.
__version__ = "0.1.0"
#: The address of the repository, such as https://github.com/OWNER/ottla. While it is empty nothing links to it: neither the
#: metadata of the package, whose build hook (hatch_build.py) reads it here, nor the pages.
REPOSITORY = ""
#: Whether the package index has this project under its name. Until then a remedy must not say `pip install ottla`, because
#: anyone may register the name. docs/RELEASING.md says when it becomes true.
IS_ON_INDEX = False
