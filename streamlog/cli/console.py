"""`streamlogctl console`: the web console."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from streamlog.cli.common.failures import Interrupted, failed
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.console_alarms import alarm_commands, not_installed
from streamlog.errors import StreamlogError

PORT: Final = 8048


def _default_data() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "streamlog" / "console"


@click.group(invoke_without_command=True)
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0: any free port.")
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=_default_data,
    show_default="~/.local/share/streamlog/console",
    help="The directory of its history.",
)
@click.option("--database", metavar="URL", default="", help="Another database for the history, as a URL of SQLAlchemy.")
@click.option(
    "--alarms",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of alarm rules and channels.  [default: alarms.toml in the data directory]",
)
@cluster_options
@click.pass_context
def console(context: click.Context, target: Target, port: int, data: Path, database: str, alarms: Path | None) -> None:
    """Show the cluster in a browser: health, topics, records, groups and their lag over time.

    Runs until Ctrl-C, on this machine's loopback address only. Needs 'pip install streamlog[console]'.

    \b
    Examples:
      streamlogctl console
      streamlogctl console --bootstrap-server node1:9092 --port 8050 --data /var/lib/streamlog-console
    """
    if context.invoked_subcommand is not None:
        return
    try:
        from streamlog.console.history import HistoryError
        from streamlog.console.server import serve
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    try:
        serve(target.settings, data, database, port, click.echo, alarms)
    except KeyboardInterrupt:
        raise Interrupted from None
    except StreamlogError as error:
        raise failed(error) from None
    except HistoryError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        where = error.filename or f"port {port}"
        raise click.ClickException(f"{where}: {error.strerror}.") from None


console.add_command(alarm_commands)
