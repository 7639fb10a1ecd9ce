"""`streamlogctl doctor`: this machine, the cluster, and the way between them are checked; for people and scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from streamlog.cli.cluster.doctor.connections import cluster_findings, connection_findings
from streamlog.cli.cluster.doctor.machine import machine_findings
from streamlog.cli.cluster.health import UNHEALTHY, show_findings
from streamlog.cli.common.output import Output, output_option
from streamlog.cli.common.paths import GivenPath
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.monitor import HealthFinding, Severity, read_cluster_state


@click.command
@click.option(
    "--dir",
    "directories",
    metavar="DIR",
    multiple=True,
    type=GivenPath(path_type=Path),
    help="A log directory on this machine, to check its disk; can be repeated.",
)
@click.option("--machine-only", is_flag=True, help="Without a cluster: only this machine.")
@output_option
@cluster_options
def doctor(target: Target, output: Output, *, directories: tuple[Path, ...], machine_only: bool) -> None:
    """Check this machine, the cluster, and the connections to its nodes from here.

    Of the machine: installed packages, the C code, the limit of open files, the disks of --dir (space, time of a sync).
    Of connections: the address that each node gives to clients, certificates. Of the cluster: as cluster health.

    Each finding has its cause and what to do. Exit code 0: none; 3: at least one.

    \b
    Examples:
      streamlogctl doctor
      streamlogctl doctor --machine-only --dir /var/lib/streamlog
      streamlogctl doctor --output json | jq -r '.[].problem'
    """
    found = machine_findings(directories)
    if not machine_only:
        found += with_cluster(target)
    found.sort(key=lambda one: one.severity is not Severity.CRITICAL)
    show_findings(output, found)
    if found:
        sys.exit(UNHEALTHY)


def with_cluster(target: Target) -> list[HealthFinding]:
    """A cluster that cannot be reached is a finding too."""

    async def examine(admin: AsyncAdmin) -> list[HealthFinding]:
        state = await read_cluster_state(admin)
        return [*await cluster_findings(target, state), *await connection_findings(target, state.cluster)]

    return with_admin(target, examine, needs_quorum=False)
