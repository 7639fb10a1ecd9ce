"""`streamlogctl local`: a cluster on this machine for development: one process for each node, one directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import click

from streamlog.cli.common.failures import failed
from streamlog.cli.common.nouns import Noun, key_values
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.paths import GivenPath
from streamlog.cli.local.overrides import check_kept, check_overrides
from streamlog.cli.local.start import STALLED_S, start_nodes
from streamlog.daemon.local_cluster import LocalCluster, LocalNode
from streamlog.daemon.local_console import PORT, LocalConsole
from streamlog.errors import StreamlogError

Command = TypeVar("Command", bound=Callable[..., object])

_DIRECTORY: Final = "streamlog-local"
_COUNT: Final = 3
_STOP_TIMEOUT_S: Final = 30.0
_COLUMNS: Final = ("node", "address", "state", "pid", "http", "directory")


@click.group(cls=Noun)
def local() -> None:
    """A cluster on this machine, for development."""


def _dir_option(command: Command) -> Command:
    return click.option(
        "--dir",
        "directory",
        metavar="DIR",
        type=GivenPath(file_okay=False, path_type=Path),
        default=_DIRECTORY,
        show_default=True,
        help="The directory of the cluster: settings, logs and data.",
    )(command)


def _nodes_argument(command: Command) -> Command:
    return click.argument("node_ids", metavar="[NODE]...", nargs=-1, type=click.IntRange(1))(command)


_timeout_option = click.option(
    "--timeout-s",
    type=click.FloatRange(0),
    default=_STOP_TIMEOUT_S,
    show_default=True,
    help="How long to wait for the nodes.",
)
_start_timeout_option = click.option(
    "--timeout-s",
    type=click.FloatRange(0),
    help=f"How long to wait for the nodes. Default: while they get further, and {STALLED_S:g} s more.",
)


@local.command
@_dir_option
@click.option(
    "--nodes", "count", type=click.IntRange(1), help="Number of nodes. Default: as at the first start; 3 then."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_000),
    help="The first node's port; the other nodes have the next ones. 0: any free ports. Default: as at the first "
    "start; 9092 then.",
)
@click.option(
    "--override",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the nodes, at the first start; afterwards change their server.properties.",
)
@click.option(
    "--secure", is_flag=True, help="Over TLS, with certificates made in DIR/certs. At the first start; kept afterwards."
)
@click.option("--console", is_flag=True, help="Start the web console too; it needs 'pip install streamlog[console]'.")
@click.option(
    "--console-port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="Its port. 0: any free one."
)
@_start_timeout_option
def start(
    directory: Path,
    count: int | None,
    port: int | None,
    overrides: tuple[str, ...],
    secure: bool,
    console: bool,
    console_port: int,
    timeout_s: float | None,
) -> None:
    """Start the nodes, and wait until they serve. They run in the background.

    \b
    Examples:
      streamlogctl local start
      streamlogctl local start --nodes 3 --dir /tmp/cluster --port 9092
      streamlogctl local start --nodes 1 --override log.flush.interval.messages=10000
      streamlogctl local start --secure
      streamlogctl local start --console
    """
    cluster = LocalCluster(directory)
    with _saying_why(directory), cluster.locked():
        values = key_values(overrides, "--override")
        wanted = count or len(cluster.nodes) or _COUNT
        check_overrides(values, wanted)
        for node in cluster.nodes:
            check_kept(node.properties, values)
        cluster.create(wanted, port, values, secure=secure)
        start_nodes(cluster, cluster.nodes, timeout_s)
        say(f"{_named(cluster.nodes)} ready: {','.join(node.address for node in cluster.nodes)}")
        _show_http(cluster.nodes)
        if console:
            limit_s = STALLED_S if timeout_s is None else timeout_s
            say(f"Console: {LocalConsole(cluster).start(console_port, limit_s)}")
        if cluster.client_file is not None:
            say(f"Connect with: streamlogctl --command-config {cluster.client_file} ...", err=True)


@contextmanager
def _saying_why(directory: Path) -> Iterator[None]:
    """ClickException for what fails in a command on the cluster of `directory`."""
    try:
        yield
    except StreamlogError as error:
        raise failed(error) from None
    except OSError as error:
        raise click.ClickException(
            f"{error.filename or directory} cannot be used ({error.strerror}): give a directory that you can write "
            "with --dir."
        ) from None


@local.command
@_dir_option
@_timeout_option
@_nodes_argument
def stop(directory: Path, node_ids: tuple[int, ...], timeout_s: float) -> None:
    """Stop nodes by a controlled shutdown; without NODE: all of them, and the console.

    \b
    Examples:
      streamlogctl local stop
      streamlogctl local stop 2
    """
    cluster = LocalCluster(directory)
    with _saying_why(directory):
        nodes = _chosen(cluster, node_ids)
        with cluster.locked():
            if not node_ids and LocalConsole(cluster).stop(timeout_s):
                say("Console stopped.")
            running = [node for node in nodes if node.process is not None]
            _stop(cluster, nodes, timeout_s)
            if running:
                say(f"{_named(running)} stopped.")
            if others := [node for node in nodes if node not in running]:
                say(f"{_named(others)} {'was' if len(others) == 1 else 'were'} not running.")


def _stop(cluster: LocalCluster, nodes: Sequence[LocalNode], timeout_s: float) -> None:
    slow = cluster.stop(nodes, timeout_s)
    if slow:
        raise click.ClickException(
            f"node {', '.join(str(node.node_id) for node in slow)} has not stopped after {timeout_s:g} s: wait longer "
            "with --timeout-s, or kill it with 'streamlogctl local kill'."
        )


@local.command
@_dir_option
@click.argument("node_ids", metavar="NODE...", nargs=-1, required=True, type=click.IntRange(1))
def kill(directory: Path, node_ids: tuple[int, ...]) -> None:
    """Kill nodes as `kill -9` does, to see how the cluster reacts.

    \b
    Example:
      streamlogctl local kill 2
    """
    cluster = LocalCluster(directory)
    with _saying_why(directory):
        nodes = _chosen(cluster, node_ids)
        with cluster.locked():
            for node in nodes:
                done = "killed" if cluster.kill(node) else "was not running"
                say(f"Node {node.node_id} {done}.")


@local.command
@_dir_option
@_start_timeout_option
@_nodes_argument
def restart(directory: Path, node_ids: tuple[int, ...], timeout_s: float | None) -> None:
    """Stop nodes by a controlled shutdown and start them again, one after the other; without NODE: all of them.

    Nodes that are not running are started first, together: the others may need them.

    \b
    Examples:
      streamlogctl local restart
      streamlogctl local restart 2
    """
    cluster = LocalCluster(directory)
    with _saying_why(directory):
        nodes = _chosen(cluster, node_ids)
        with cluster.locked():
            running = [node for node in nodes if node.process is not None]
            stopped = [node for node in nodes if node not in running]
            _check_not_alone(cluster, nodes)
            if stopped:
                start_nodes(cluster, stopped, timeout_s)
                say(f"{_named(stopped)} started.")
            for node in running:
                _stop(cluster, [node], _STOP_TIMEOUT_S if timeout_s is None else timeout_s)
                start_nodes(cluster, [node], timeout_s)
                say(f"{_named([node])} restarted.")


def _check_not_alone(cluster: LocalCluster, nodes: Sequence[LocalNode]) -> None:
    """ClickException: there are others, and none of them is running: the nodes may wait for them, and in vain."""
    others = [node for node in cluster.nodes if node not in nodes]
    if others and all(node.process is None for node in others):
        raise click.ClickException(
            f"no other node of {cluster.directory} is running: start all of them with 'streamlogctl local start --dir "
            f"{cluster.directory}'."
        )


@local.command
@_dir_option
@output_option
def status(directory: Path, output: Output) -> None:
    """Show which nodes are running, and their addresses.

    \b
    Example:
      streamlogctl local status
    """
    cluster = LocalCluster(directory)
    with _saying_why(directory):
        rows = [_row(node) for node in cluster.nodes]
        if not rows and output is not Output.JSON:
            say(f"There is no cluster in {directory}: start one with 'streamlogctl local start --dir {directory}'.")
            return
        show_rows(output, rows, columns=_COLUMNS)
        if console := LocalConsole(cluster).url:
            say(f"Console: {console}", err=True)


def _row(node: LocalNode) -> Row:
    process = node.process
    return {
        "node": node.node_id,
        "address": node.address,
        "http": node.http,
        "state": "stopped" if process is None else "running",
        "pid": "" if process is None else process.pid,
        "directory": str(node.folder),
    }


def _show_http(nodes: Sequence[LocalNode]) -> None:
    served = [f"{node.http}/metrics" for node in nodes if node.http]
    if served:
        say(f"Metrics: {' '.join(served)}", err=True)


def _chosen(cluster: LocalCluster, node_ids: Sequence[int]) -> Sequence[LocalNode]:
    """StreamlogError: there is no such node. ClickException: there is no cluster."""
    if not cluster.nodes:
        raise click.ClickException(
            f"there is no cluster in {cluster.directory}: give its directory with --dir, or start one with "
            "'streamlogctl local start'."
        )
    return [cluster.node(node_id) for node_id in dict.fromkeys(node_ids)] or cluster.nodes


def _named(nodes: Sequence[LocalNode]) -> str:
    ids = ", ".join(str(node.node_id) for node in nodes)
    return f"Node {ids}" if len(nodes) == 1 else f"Nodes {ids}"
