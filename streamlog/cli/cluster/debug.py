"""`streamlogctl debug bundle`: what an expert needs to see of a cluster, in one file.

Each part is collected by itself; what cannot be is in the file as its error, so that a broken cluster gives a bundle,
too. Without any node it has the logs and what is known of this machine, and the command fails. No records are read, and
no values of sensitive configs; what looks like a secret in configs and logs is masked.
"""

from __future__ import annotations

import enum
import json
import platform
import re
import sys
import time
import zipfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import asdict

from streamlog.cli.common.failures import sentence
from streamlog.cli.common.nouns import Noun
from streamlog.cli.common.output import say
from streamlog.cli.common.paths import GivenPath
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.group_values import PartitionLag
from streamlog.client.admin.values import ConfigResource, ConfigSource
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.daemon.text_file import private
from streamlog.errors import BrokerNotAvailableError, StreamlogError
from streamlog.model import TopicPartition
from streamlog.monitor import findings_of, read_cluster_state

_LOG_BYTES_MAX: Final = 10 << 20  # of each log: its end
_AT_ONCE: Final = 100  # resources or groups in a request
_MASK: Final = "(masked)"
_SECRET_NAME: Final = re.compile(r"passw|secret|token|credential|jaas|\bkey\b|private|\.key$", re.IGNORECASE)
_SECRET: Final = re.compile(
    r"(?i)((?:password|passwd|secret|token|authorization)\S{0,20}?\s*[=:]\s*)"
    r"""(?:\\"(?:(?!\\")[^\n])*\\"|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?:basic |bearer )?\S+)"""
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


@click.group(cls=Noun)
def debug() -> None:
    """Collect what is needed to find the cause of a problem."""


@debug.command
@click.option(
    "--file",
    "path",
    metavar="FILE",
    type=GivenPath(dir_okay=False, path_type=Path),
    help="The bundle; default: streamlog-debug-TIME.zip here.",
)
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A local cluster, whose nodes' logs are put in, too.",
)
@click.option(
    "--log-file",
    "logs",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A node's log, of which the end is put in; repeatable.",
)
@cluster_options
def bundle(target: Target, path: Path | None, directory: Path | None, logs: tuple[Path, ...]) -> None:
    """Write a zip file with the state of a cluster: nodes, topics, configs, groups, transactions, disks, health.

    It has names of topics, groups, clients and hosts. It has no records, and no passwords and keys: sensitive configs
    are never sent by the nodes, and what looks like a secret in other configs and in logs is masked.

    \b
    Examples:
      streamlogctl debug bundle
      streamlogctl debug bundle --file bundle.zip --log-file /var/log/streamlogd.log
      streamlogctl debug bundle --dir cluster
    """
    path = path or Path(time.strftime("streamlog-debug-%Y%m%dT%H%M%S.zip", time.gmtime()))
    parts: dict[str, bytes] = {"tool.json": _json(_tool(target))}
    failed: dict[str, StreamlogError] = {}
    unreachable: BrokerNotAvailableError | None = None

    async def work(admin: AsyncAdmin) -> None:
        nonlocal unreachable
        try:
            await admin.describe_node()
        except BrokerNotAvailableError as error:  # as every part would, each after a while
            unreachable = error
            parts["cluster.json"] = _json({"error": error})
            return
        for name, collect in _PARTS.items():
            try:
                parts[f"{name}.json"] = _json(await collect(admin))
            except StreamlogError as error:
                failed[name] = error
                parts[f"{name}.json"] = _json({"error": error})

    with_admin(target, work)
    files = [*logs, *([node.log for node in LocalCluster(directory).nodes] if directory is not None else [])]
    for number, file in enumerate(files, start=1):
        parts[f"logs/{number}-{file.name}"] = _end_of(file)
    _write(path, parts)
    for name, error in failed.items():
        say(f"Warning: {name}: {error.message}.", err=True)
    say(f"Wrote {path}: {len(parts)} parts, {path.stat().st_size:,} bytes.")
    if unreachable is not None:
        raise click.ClickException(f"the state of the cluster is not in it: {sentence(unreachable)}")


def _write(path: Path, parts: Mapping[str, bytes]) -> None:
    """Readable by its owner only, since no mask finds every secret; whole, or not at all. ClickException."""
    try:
        file = open(path, "xb", opener=private)  # noqa: SIM115  closed below
        try:
            with file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in parts.items():
                    archive.writestr(name, data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise click.ClickException(f"{path} exists: give another name with --file.") from None
    except OSError as problem:
        raise click.ClickException(f"{path}: cannot be written: {problem.strerror}.") from None


def _tool(target: Target) -> dict[str, object]:
    return {
        "release": version("streamlog"),
        "python": sys.version,
        "platform": platform.platform(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "bootstrap_servers": target.servers,
    }


async def _topics(admin: AsyncAdmin) -> Any:
    names = [one.name for one in await admin.list_topics(include_internal=True)]
    return await admin.describe_topics(names) if names else []


async def _configs(admin: AsyncAdmin) -> Any:
    """Of all nodes, all that apply; of topics, those that are set."""
    nodes = [ConfigResource.broker(node.node_id) for node in (await admin.describe_cluster()).nodes]
    topics = [ConfigResource.topic(one.name) for one in await admin.list_topics(include_internal=True)]
    found: dict[str, Any] = {}
    for resources in (*_some(nodes, 1), *_some(topics, _AT_ONCE)):
        for one in await admin.describe_configs(resources):
            of_topic = one.resource in topics
            found[f"{one.resource.type.value} {one.resource.name}"] = one.error or {
                entry.name: {
                    "value": _MASK if entry.value and _SECRET_NAME.search(entry.name) else entry.value,
                    "source": entry.source.value,
                }
                for entry in one.entries
                if not of_topic or entry.source is ConfigSource.TOPIC
            }
    return found


async def _groups(admin: AsyncAdmin) -> Any:
    listed = await admin.list_groups()
    found = []
    for names in _some([one.group for one in listed.groups], _AT_ONCE):
        for one in await admin.describe_groups(names):
            lag = await admin.group_lag(one.group, one) if one.error is None else ()
            found.append({"description": one, "offsets": [_progress(at) for at in lag]})
    return {"groups": found, "errors": listed.errors}


def _progress(one: PartitionLag) -> dict[str, object]:
    """Without the metadata of the commit, which are the application's."""
    return {
        "partition": str(one.at),
        "committed": None if one.committed is None else one.committed.offset,
        "log_end": one.log_end,
        "lag": one.lag,
        "member": None if one.member is None else one.member.member_id,
    }


async def _transactions(admin: AsyncAdmin) -> Any:
    return {
        "transactions": await admin.list_transactions(),
        "hanging": await admin.find_hanging_transactions(),
    }


async def _health(admin: AsyncAdmin) -> Any:
    return findings_of(await read_cluster_state(admin))


_PARTS: Final[Mapping[str, Callable[[AsyncAdmin], Awaitable[Any]]]] = {
    "cluster": lambda admin: admin.describe_cluster(),
    "node": lambda admin: admin.describe_node(),
    "health": _health,
    "topics": _topics,
    "configs": _configs,
    "reassignments": lambda admin: admin.list_partition_reassignments(),
    "log-dirs": lambda admin: admin.describe_log_dirs(),
    "groups": _groups,
    "transactions": _transactions,
}


def _some(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    return [items[at : at + count] for at in range(0, len(items), count)]


def _json(value: object) -> bytes:
    return json.dumps(_plain(value), indent=1, ensure_ascii=False).encode(errors="backslashreplace")


def _plain(value: object) -> object:
    """What JSON has."""
    match value:
        case StreamlogError():
            return {"code": value.code, "message": masked(value.message)}
        case Struct():
            return _plain(asdict(value))
        case enum.Enum():
            return value.value
        case bytes():
            return value.hex()
        case TopicPartition():
            return str(value)
        case Mapping():
            return {str(_plain(name)): _plain(one) for name, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def masked(text: str) -> str:
    """Without what looks like a secret."""
    return _SECRET.sub(lambda match: (match[1] or "") + _MASK, text)


def _end_of(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(0, 2)
            opened.seek(max(0, opened.tell() - _LOG_BYTES_MAX))
            return masked(opened.read(_LOG_BYTES_MAX).decode(errors="replace")).encode()
    except OSError as problem:
        return f"{file}: {problem.strerror}\n".encode()
