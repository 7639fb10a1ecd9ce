"""`streamlogctl cluster health`: the cluster's problems, their causes, and what to do; for people and scripts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.cluster.doctor.connections import cluster_findings
from streamlog.cli.common.output import Output, Row, output_option, show_json, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.monitor import HealthFinding, Severity, read_cluster_state
from streamlog.printable import escaped

UNHEALTHY: Final = 3
_COLUMNS: Final = ("severity", "problem", "cause", "remedy")
_COLOURS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow"}


@click.command
@click.option(
    "--critical",
    "critical_only",
    is_flag=True,
    help="Only what stops writes, reads or metadata changes, or leaves no redundancy for the next failure: a node "
    "that is down while it holds replicas, too.",
)
@output_option
@cluster_options
def health(target: Target, output: Output, *, critical_only: bool) -> None:
    """Show the cluster's problems, each with its cause and what to do. Exit code 0: none; 3: at least one.

    Each node that the metadata calls active is called, too: one that has just failed, or is out of reach, is found.

    \b
    Examples:
      streamlogctl cluster health
      streamlogctl cluster health --critical && ./deploy.sh
      streamlogctl cluster health --output json | jq -r '.[].problem'
    """

    async def examine(admin: AsyncAdmin) -> list[HealthFinding]:
        return await cluster_findings(target, await read_cluster_state(admin))

    found = with_admin(target, examine, needs_quorum=False)
    found = [one for one in found if one.severity is Severity.CRITICAL or not critical_only]
    found.sort(key=lambda one: one.severity is not Severity.CRITICAL)
    show_findings(output, found)
    if found:
        sys.exit(UNHEALTHY)


def show_findings(output: Output, found: Sequence[HealthFinding]) -> None:
    match output:
        case Output.JSON:
            show_json([_row(one) for one in found])
        case Output.TEXT:
            show_rows(output, [_row(one) for one in found], columns=_COLUMNS)
        case Output.TABLE:
            for one in found:
                label = click.style(one.severity.value.upper(), fg=_COLOURS[one.severity], bold=True)
                problem = click.style(escaped(one.problem), bold=True)
                click.echo(f"{label}  {problem}\n  why  {escaped(one.cause)}\n  do   {escaped(one.remedy)}")
            if not found:
                click.echo(click.style("Healthy.", fg="green"))


def _row(one: HealthFinding) -> Row:
    return {
        "severity": one.severity.value,
        "subject": one.subject,
        "problem": one.problem,
        "cause": one.cause,
        "remedy": one.remedy,
    }
