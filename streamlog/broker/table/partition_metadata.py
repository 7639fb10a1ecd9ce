"""`partition.metadata`: the topic id of a partition's directory. Kafka's file, version 0.

A topic that is deleted and recreated has the same name and another id. A log serves only the topic whose id is in its
directory. The file is durable before the first record is written, so a log with records and without the file comes
from another program; it is adopted, as Kafka does.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from streamlog.errors import DamagedFileError
from streamlog.model import TopicId
from streamlog.ports import FileSystem
from streamlog.storage.files import names
from streamlog.storage.files.replace_file import read_file, replace_file

SIZE_MAX: Final = 4096
_REMEDY: Final = "remove the partition's directory and let the replica catch up"


def format_topic_id(topic_id: TopicId) -> bytes:
    text = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {text}\n".encode()


def parse_topic_id(path: str, content: bytes) -> TopicId:
    """DamagedFileError if it is not such a file."""
    lines = content.decode("ascii", "replace").split("\n")
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if values.get("version") != "0":
        raise DamagedFileError(path, 0, f"version {values.get('version')!r}, only 0 is known", _REMEDY)
    text = values.get("topic_id", "")
    try:
        topic_id = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != 16:
        raise DamagedFileError(path, 0, f"{text[:80]!r} is not a topic id", _REMEDY)
    return TopicId(topic_id)


def read_topic_id(fs: FileSystem, directory: str) -> TopicId | None:
    """None if there is no file. DamagedFileError, OSError."""
    path = names.join(directory, names.PARTITION_METADATA)
    try:
        content = read_file(fs, path, SIZE_MAX)
    except ValueError as e:
        raise DamagedFileError(path, 0, str(e), _REMEDY) from None
    return None if content is None else parse_topic_id(path, content)


async def write_topic_id(fs: FileSystem, directory: str, topic_id: TopicId) -> None:
    """Durable when it returns. OSError."""
    await replace_file(fs, names.join(directory, names.PARTITION_METADATA), format_topic_id(topic_id))
