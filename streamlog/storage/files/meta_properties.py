"""`meta.properties`: the node and cluster that own a log directory. Kafka's file, version 1.

A directory of another cluster or node is refused: two clusters never mix their records. The directory id (128 random
bits, in Kafka's notation) distinguishes the directories of one node.
"""

from __future__ import annotations

import base64
from typing import Final

from msgspec import Struct

from streamlog.errors import DamagedFileError, InconsistentClusterError
from streamlog.model import BrokerId
from streamlog.ports import FileSystem, Random
from streamlog.storage.files import names
from streamlog.storage.files.replace_file import read_file, replace_file

SIZE_MAX: Final = 64 << 10
_REMEDY: Final = "restore the file from a backup, or give the node an empty directory and let it catch up"


class MetaProperties(Struct, frozen=True, kw_only=True):
    node_id: BrokerId
    directory_id: str
    cluster_id: str | None = None  # None: the node has not joined a cluster yet


def new_id(random: Random) -> str:
    """128 random bits in URL-safe base64 without padding, as Kafka prints its Uuids. Never begins with `-`."""
    while True:
        text = base64.urlsafe_b64encode(random.getrandbits(128).to_bytes(16, "big")).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def format_meta(meta: MetaProperties) -> bytes:
    cluster = [] if meta.cluster_id is None else [f"cluster.id={meta.cluster_id}"]
    return "\n".join(
        ["version=1", *cluster, f"directory.id={meta.directory_id}", f"node.id={meta.node_id}", ""]
    ).encode()


def parse_meta(path: str, content: bytes) -> MetaProperties:
    """Raises DamagedFileError. Lines that begin with `#` are comments."""
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as e:
        raise DamagedFileError(path, e.start, "not UTF-8 text", _REMEDY) from None
    entries = [line.partition("=") for line in lines if line.strip() and not line.startswith("#")]
    values = {key.strip(): value.strip() for key, _, value in entries}
    if values.get("version") != "1":
        raise DamagedFileError(path, 0, f"version {values.get('version')!r}, only version 1 is supported", _REMEDY)
    node_id, directory_id = values.get("node.id", ""), values.get("directory.id", "")
    if not (node_id.isascii() and node_id.isdigit() and len(node_id) <= 10) or not directory_id:
        raise DamagedFileError(path, 0, "node.id or directory.id is missing", _REMEDY)
    if not _is_id(directory_id):
        raise DamagedFileError(
            path, 0, f"{directory_id[:80]!r} is not a directory.id: 16 bytes in URL-safe base64", _REMEDY
        )
    return MetaProperties(
        node_id=BrokerId(int(node_id)), directory_id=directory_id, cluster_id=values.get("cluster.id")
    )


def _is_id(text: str) -> bool:
    """Whether it has the form of an id of `new_id`."""
    try:
        return len(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)) == 16
    except ValueError:
        return False


async def claim(
    fs: FileSystem, directory: str, node_id: BrokerId, cluster_id: str | None, random: Random
) -> MetaProperties:
    """Read the directory's file and check that it belongs to this node and cluster; write it where there is none, or
    where the cluster has become known.

    Raises InconsistentClusterError, DamagedFileError.
    """
    path = names.join(directory, names.META_PROPERTIES)
    try:
        content = read_file(fs, path, SIZE_MAX)
    except ValueError as e:
        raise DamagedFileError(path, 0, str(e), _REMEDY) from None
    if content is None:
        found = MetaProperties(node_id=node_id, directory_id=new_id(random), cluster_id=cluster_id)
        await replace_file(fs, path, format_meta(found))
        return found
    found = parse_meta(path, content)
    if found.node_id != node_id:
        raise InconsistentClusterError(
            f"{directory} belongs to node {found.node_id}, this is node {node_id}: give each node its own log.dirs",
            field="node.id",
            limit=found.node_id,
        )
    if cluster_id is None or found.cluster_id == cluster_id:
        return found
    if found.cluster_id is not None:
        raise InconsistentClusterError(
            f"{directory} belongs to cluster {found.cluster_id}, this node is joining {cluster_id}",
            field="cluster.id",
            limit=found.cluster_id,
        )
    joined = MetaProperties(node_id=node_id, directory_id=found.directory_id, cluster_id=cluster_id)
    await replace_file(fs, path, format_meta(joined))
    return joined
