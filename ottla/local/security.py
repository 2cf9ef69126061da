"""TLS and logins of a local cluster (`ottla dev --secure`, `Cluster(secure=True)`).

They are made once, and kept in its directory.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from random import SystemRandom

from ottla.local import secure_files
from ottla.local.nodes import HOST, LocalNode
from ottla.local.secure_files import SecureFiles
from ottla.local.storage_format import format_directories
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.files import OsFiles

FOLDER = "secure"
HOSTS = (HOST, "localhost", "::1")


def secure(
    nodes: Sequence[LocalNode], directory: str, cluster_id: str, properties: Mapping[int, dict[str, str]]
) -> SecureFiles:
    """Give each node its file of security properties, and format new directories with the users in their metadata."""
    folder = os.path.join(directory, FOLDER)
    files = secure_files.opened(folder) or secure_files.make(folder, {_name(node): HOSTS for node in nodes})
    for node in nodes:
        own, secured = properties[node.id], files.node_properties(_name(node))
        node.properties_file = files.node_file(_name(node))
        for name in own.keys() & secured.keys():
            del own[name]
        for name in own.keys() & {"listeners", "advertised.listeners"}:
            own[name] = own[name].replace("PLAINTEXT://", "SASL_SSL://")
        if read_meta_properties(OsFiles(), node.data_dir) is None:
            _format(own | secured, cluster_id, files)
    return files


def _name(node: LocalNode) -> str:
    return f"node-{node.id}"


def _format(properties: Mapping[str, str], cluster_id: str, files: SecureFiles) -> None:
    options = argparse.Namespace(
        config="the local cluster",
        cluster_id=cluster_id,
        ignore_formatted=False,
        add_scram=files.add_scram,
        feature=[],
        release_version=None,
        standalone=False,
        no_initial_controllers=False,
        initial_controllers=None,
    )
    format_directories(OsFiles(), properties, options, SystemRandom())
