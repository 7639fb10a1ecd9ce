"""The directory of the quorum's journal, below metadata.log.dir or the first log directory.

A node whose settings name another place than before, such as a new disk in front of log.dirs, would begin an empty
quorum there: its votes would be gone, and on a node that votes alone all metadata, so that every partition is set aside
as stray. So it is refused while another log directory has the quorum's identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.errors import InconsistentClusterError, StorageError
from streamlog.ports import FileSystem
from streamlog.raft.open_storage import IDENTITY

DIRECTORY: Final = "__cluster_metadata"
"""No partition's directory has this name: those end in a number."""


def quorum_directory(fs: FileSystem, above: str, log_dirs: Iterable[str]) -> str:
    """The one below `above`. InconsistentClusterError where it has no identity, but one below another directory has;
    StorageError if a disk fails.
    """
    path, looked_at = f"{above.rstrip('/')}/{DIRECTORY}", above
    try:
        if fs.exists(f"{path}/{IDENTITY}"):
            return path
        for looked_at in log_dirs:
            other = f"{looked_at.rstrip('/')}/{DIRECTORY}"
            if fs.exists(f"{other}/{IDENTITY}"):
                raise InconsistentClusterError(
                    f"the votes and the metadata of this node are in {other}, but its settings name {path}, where "
                    f"there are none: set metadata.log.dir={looked_at}, or move {other} to {path}",
                    field="metadata.log.dir",
                    path=path,
                )
    except OSError as error:
        raise StorageError(f"{looked_at}: {error}", path=looked_at, errno=error.errno) from error
    return path


def lost_by_only_voter(cluster_id: str, directory: str) -> InconsistentClusterError:
    """The log directories have an id and the quorum's directory, which is made before, is not there."""
    return InconsistentClusterError(
        f"this node belongs to cluster {cluster_id} by its log directories, and is the only voter by its settings, but "
        f"{directory} has no log of the metadata. A new one has no topics, so all partitions would be set aside: set "
        "metadata.log.dir to where the log is, or restore it from a backup; set controller.quorum.voters if other "
        "nodes vote; or empty log.dirs to begin without data",
        field="metadata.log.dir",
        path=directory,
    )
