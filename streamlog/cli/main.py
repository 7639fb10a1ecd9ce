"""The entry point of `streamlogctl`: finds a command by name and loads no other."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import click

from streamlog.aio.standard_streams import open_standard_streams
from streamlog.cli.common.failures import end_if_output_failed, not_utf8
from streamlog.cli.common.library_logs import show_warnings
from streamlog.cli.common.output import on_terminal


class _Command(NamedTuple):
    module: str  # holds the command as an attribute of its own name, with `_` for `-`
    short_help: str


_COMMANDS: Final = {
    "topic": _Command("streamlog.cli.topic.commands", "Create, list, describe, alter, trim and delete topics."),
    "produce": _Command("streamlog.cli.records.produce", "Write lines of standard input as records."),
    "consume": _Command("streamlog.cli.records.consume", "Read records and print them."),
    "offsets": _Command("streamlog.cli.records.offsets", "Show offsets of partitions: ends, beginnings, at a time."),
    "records": _Command("streamlog.cli.records.delete", "Delete the oldest records of partitions."),
    "group": _Command("streamlog.cli.group.commands", "List, describe, reset and delete consumer groups."),
    "transaction": _Command(
        "streamlog.cli.transaction", "List, describe and abort transactions, and find those that hang."
    ),
    "config": _Command("streamlog.cli.config", "Show and change configs of topics and nodes."),
    "broker-logger": _Command("streamlog.cli.broker_logger", "Show and change what a node logs, while it runs."),
    "cluster": _Command("streamlog.cli.cluster.commands", "Nodes, quorum, disks; drain and unregister nodes."),
    "profile": _Command("streamlog.cli.cluster.profile", "Named clusters, to connect to by name."),
    "doctor": _Command(
        "streamlog.cli.cluster.doctor.command", "Check this machine, the cluster, and the way between them."
    ),
    "debug": _Command("streamlog.cli.cluster.debug", "Collect what is needed to find the cause of a problem."),
    "perf": _Command("streamlog.cli.perf.commands", "Measure how fast the cluster writes and reads."),
    "verifiable": _Command("streamlog.cli.perf.verifiable", "Clients that print each event as JSON, for tests."),
    "top": _Command("streamlog.cli.top.command", "Rates, lags and nodes, live."),
    "partition": _Command("streamlog.cli.partition.commands", "Elect leaders, move replicas, compare replicas."),
    "pipeline": _Command("streamlog.cli.pipeline", "Spark pipelines that ship: list and run them."),
    "console": _Command("streamlog.cli.console.commands", "The web console: the cluster in a browser."),
    "security": _Command("streamlog.cli.security.certificates", "Make and check certificates of nodes and clients."),
    "user": _Command("streamlog.cli.security.user", "Create, list and delete users with passwords."),
    "acl": _Command("streamlog.cli.security.acl", "Who may do what: access control lists."),
    "quota": _Command("streamlog.cli.security.quota", "How much users and clients may write and read."),
    "local": _Command("streamlog.cli.local.commands", "A cluster on this machine, for development."),
    "dump": _Command("streamlog.cli.dump.command", "Print the files of a log, and report corrupt ones."),
    "completion": _Command("streamlog.cli.completion", "Print the completion script of a shell."),
}


# Options accepted before the command too, as in other tools.
_OF_ALL_COMMANDS: Final = (
    "--bootstrap-server",
    "--bootstrap-servers",
    "--broker-list",
    "--profile",
    "--command-config",
)


class LazyGroup(click.Group):
    """Imports a command's module when the command is called, not when it is listed. Lists in the table's order."""

    def main(self, *args: Any, **given: Any) -> Any:
        is_closed = sys.stdout is None  # `command >&-`
        open_standard_streams()
        if is_closed:  # what is printed fails then; /dev/null would take it without a word
            os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        try:
            return super().main(*args, **given)
        except OSError as error:
            end_if_output_failed(error, is_closed=is_closed)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _behind_the_command(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Escapes the messages of all errors for the terminal."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.ClickException as error:
            if (shown := on_terminal(error.message, err=True)) != error.message:
                error.message = shown  # type: ignore[misc]  # click's classes differ in how they are made again
            raise
        except UnicodeEncodeError as error:
            raise not_utf8(error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """click names what is near only of commands that are loaded."""
        if args[0] not in _COMMANDS and (near := difflib.get_close_matches(args[0], _COMMANDS, n=1)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].short_help) for name in self.list_commands(ctx)])


def _behind_the_command(args: list[str]) -> list[str]:
    """`--bootstrap-server X topic list` as `topic list --bootstrap-server X`."""
    end = 0
    while end < len(args) and args[end].partition("=")[0] in _OF_ALL_COMMANDS:
        end += 1 if "=" in args[end] else 2
    moved, rest = args[:end], args[end:]
    at = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:at], *moved, *rest[at:]] if rest else args


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("streamlog"), prog_name="streamlogctl")
def main() -> None:
    """Manage a streamlog cluster and its files.

    `streamlogctl COMMAND --help` explains a command, with examples.
    """
    if os.environ.get("NO_COLOR"):  # tables and `top` respect it by rich
        click.get_current_context().color = False
    show_warnings()
