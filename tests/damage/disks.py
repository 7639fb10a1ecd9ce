"""The disks of a stopped cluster as values: taken from one simulation, put into many others, damaged in between."""

from __future__ import annotations

from typing import TypeAlias

from streamlog.sim.files.disk import SimDisk
from streamlog.sim.files.inode import DirectoryNode, FileNode

Files: TypeAlias = dict[str, bytes]
"""Path -> content; a directory ends with `/`."""


def files_of(disk: SimDisk) -> Files:
    found: Files = {}
    _collect(disk.root, "", found)
    return found


def _collect(directory: DirectoryNode, path: str, found: Files) -> None:
    for name, node in sorted(directory.entries.items()):
        here = f"{path}/{name}"
        if isinstance(node, DirectoryNode):
            found[f"{here}/"] = b""
            _collect(node, here, found)
        elif isinstance(node, FileNode):
            found[here] = content_of(node)


def content_of(node: FileNode) -> bytes:
    return bytes(node.cache.read(node.cache.size, 0))


def put(disk: SimDisk, files: Files) -> None:
    """Onto an empty disk, durable."""
    for path, content in files.items():
        if path.endswith("/"):
            disk.make_directory(path.rstrip("/"))
        else:
            disk.make_file(path)
            node = disk.find(path)
            assert isinstance(node, FileNode)
            if content:
                disk.write(node, content, 0)
    disk.sync_everything(*disk.unsynced())


def overwrite(disk: SimDisk, path: str, content: bytes | None) -> None:
    """Behind everybody's back: in the cache and on the platter. None: the file is gone."""
    if content is None:
        disk.remove(path)
        return
    node = disk.find(path)
    assert isinstance(node, FileNode)
    for image in (node.cache, node.platter):
        if len(content) < image.size:
            image.resize(len(content))
        image.write(content, 0)
    for window in node.live_windows():
        window.update(content[: window.size], 0)
