"""`streamlogctl partition`: elect leaders, move replicas, compare and repair replicas."""

from __future__ import annotations

import click

from streamlog.cli.common.nouns import Noun
from streamlog.cli.partition.elect import elect
from streamlog.cli.partition.log_dir import move_log_dir
from streamlog.cli.partition.reassign import reassign
from streamlog.cli.partition.replicas import repair, verify


@click.group(cls=Noun)
def partition() -> None:
    """Elect leaders, move replicas, compare and repair replicas."""


for command in (elect, reassign, verify, repair, move_log_dir):
    partition.add_command(command)
