"""`partition.metadata`: of which topic a partition's directory is. Kafka's file, version 0.

A topic that is deleted and made anew has the same name and another id. A log serves only the topic whose id stands in
its directory. The file is durable before the first record is written, so a log that has records and lacks it is one
that another program has put there; it is adopted, as Kafka does.
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


def format_identity(topic_id: TopicId) -> bytes:
    text = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {text}\n".encode()


def parse_identity(path: str, content: bytes) -> TopicId:
    """DamagedFileError where it is no such file."""
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
        raise DamagedFileError(path, 0, f"{text[:80]!r} is no topic id", _REMEDY)
    return TopicId(topic_id)


def read_identity(fs: FileSystem, directory: str) -> TopicId | None:
    """None where there is no file. DamagedFileError, OSError."""
    path = names.join(directory, names.PARTITION_METADATA)
    try:
        content = read_file(fs, path, SIZE_MAX)
    except ValueError as e:
        raise DamagedFileError(path, 0, str(e), _REMEDY) from None
    return None if content is None else parse_identity(path, content)


async def write_identity(fs: FileSystem, directory: str, topic_id: TopicId) -> None:
    """Durable when it returns. OSError."""
    await replace_file(fs, names.join(directory, names.PARTITION_METADATA), format_identity(topic_id))
