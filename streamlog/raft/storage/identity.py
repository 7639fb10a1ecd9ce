"""The owner of the directory, and the fact that it once had state.

The identity is written once, after the first journal and before the first vote. From then on a journal must exist: a
node without its journal has lost its votes and acknowledged entries, and must not take part as the same voter. The
directory's id is in every Hello, so the others notice when the whole directory was lost.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import CorruptMessageError, DamagedFileError, InconsistentClusterError
from streamlog.model import BrokerId
from streamlog.ports import FileSystem, Random
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.stored import QuorumIdentity
from streamlog.raft.storage.framed_file import read_framed, write_framed
from streamlog.raft.voters import DIRECTORY_ID_BYTES, DirectoryId

MAGIC: Final = b"SLQI"


def draw_directory_id(random: Random) -> DirectoryId:
    return DirectoryId(random.getrandbits(8 * DIRECTORY_ID_BYTES).to_bytes(DIRECTORY_ID_BYTES, "big"))


async def write_identity(fs: FileSystem, path: str, identity: QuorumIdentity) -> None:
    await write_framed(fs, path, MAGIC, wire.encode_identity(identity))


def read_identity(fs: FileSystem, path: str, *, remedy: str) -> QuorumIdentity:
    """DamagedFileError, UnsupportedVersionError, FileNotFoundError."""
    payload = read_framed(fs, path, MAGIC, remedy=remedy)
    try:
        return wire.decode_identity(payload)
    except CorruptMessageError as error:
        raise DamagedFileError(path, 0, str(error), remedy) from None


def check_owner(identity: QuorumIdentity, path: str, *, cluster_id: str, node_id: BrokerId) -> None:
    """InconsistentClusterError if the directory belongs to another node or cluster."""
    for what, found, own in (
        ("node", identity.node_id, node_id),
        ("cluster", identity.cluster_id, cluster_id),
    ):
        if found != own:
            raise InconsistentClusterError(f"{path}: belongs to {what} {found}, but this is {what} {own}", path=path)
