"""`streamlogctl security`: a certificate authority, and certificates of nodes and clients, in one directory."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import click

from streamlog.cli.common.failures import failed
from streamlog.cli.common.nouns import Noun
from streamlog.cli.common.output import Output, Row, output_option, say, show_rows
from streamlog.cli.common.paths import GivenPath
from streamlog.config.addresses import Address
from streamlog.errors import StreamlogError
from streamlog.tls.authority import (
    CA_CERTIFICATE,
    CERTIFICATE_DAYS,
    Authority,
    check_host,
)
from streamlog.tls.described import DescribedCertificate, described
from streamlog.tls.settings_files import (
    ADMINISTRATOR,
    as_properties,
    client_settings,
    node_settings,
    principal,
    write_client_properties,
)

Command = TypeVar("Command", bound=Callable[..., object])
_COLUMNS: Final = ("file", "subject", "node", "hosts", "expires", "days_left", "issuer")
PORT: Final = 9092


@click.group(cls=Noun)
def security() -> None:
    """Certificates, for nodes that listen at SSL://."""


def _dir_option(command: Command) -> Command:
    return click.option(
        "--dir",
        "directory",
        metavar="DIR",
        type=GivenPath(file_okay=False, path_type=Path),
        default="certs",
        show_default=True,
        help="The directory of the authority and of the certificates.",
    )(command)


_days_option = click.option(
    "--days", type=click.IntRange(1, 3650), default=CERTIFICATE_DAYS, show_default=True, help="How long it is valid."
)
_renew_option = click.option("--renew", is_flag=True, help="Replace an existing certificate, with a new key.")


@security.command
@_dir_option
@click.option(
    "--nodes",
    metavar="HOST,...",
    default="",
    help="The hosts of nodes 1, 2, ...: the names or addresses by which others connect to them.",
)
def init(directory: Path, nodes: str) -> None:
    """Make an authority, a certificate for each node, and one for an administrator.

    \b
    Example:
      streamlogctl security init --dir certs --nodes kafka-a,kafka-b,kafka-c
    """
    hosts = [host.strip() for host in nodes.split(",") if host.strip()]
    with _reported(directory):
        for host in hosts:
            check_host(host)  # before anything is written
        authority = Authority.create(directory)
        for node_id, host in enumerate(hosts, start=1):
            authority.add_node(node_id, [host])
            say(f"Node {node_id}: copy {directory}/node-{node_id}.pem and {CA_CERTIFICATE} to {host}, and set there:")
            say(_indented(node_settings(directory, node_id, str(Address(host, PORT)))))
        authority.add_client(ADMINISTRATOR)
        path = write_client_properties(directory, ADMINISTRATOR)
    say(f"Administrator: streamlogctl --command-config {path} ...")
    say(f"Keep {directory}/ca.key off the nodes: it can sign certificates of nodes.")


@security.command
@_dir_option
@_days_option
@_renew_option
@click.argument("node_id", metavar="NODE", type=click.IntRange(0))
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
def node(directory: Path, node_id: int, hosts: tuple[str, ...], days: int, renew: bool) -> None:
    """Make a certificate of a node, for the names and addresses by which others connect to it.

    A running node uses a renewed certificate within seconds of its copy to the node's ssl.keystore.location.

    \b
    Examples:
      streamlogctl security node 4 kafka-d 10.0.0.4
      streamlogctl security node 4 kafka-d 10.0.0.4 --renew
    """
    with _reported(directory):
        path = Authority.load(directory).add_node(node_id, hosts, days=days, renew=renew)
    say(f"{path}: key and certificate of node {node_id}. Settings of the node:")
    say(_indented(node_settings(directory, node_id, str(Address(hosts[0], PORT)))))


@security.command
@_dir_option
@_days_option
@_renew_option
@click.argument("name")
def client(directory: Path, name: str, days: int, renew: bool) -> None:
    """Make a certificate of a client, and a file with its settings.

    \b
    Example:
      streamlogctl security client orders-service
    """
    with _reported(directory):
        Authority.load(directory).add_client(name, days=days, renew=renew)
        path = write_client_properties(directory, name)
    say(f"{directory}/{name}.pem: key and certificate of {name}, whose principal is {principal(name)}.")
    say(f"Settings, also in {path} (an existing file is not changed):")
    say(_indented(client_settings(directory, name)))


@security.command
@output_option
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def describe(files: tuple[Path, ...], output: Output) -> None:
    """Show the certificates in PEM files: subject, node, hosts, when they expire.

    \b
    Example:
      streamlogctl security describe certs/*.pem certs/ca.crt
    """
    now = datetime.datetime.now(datetime.UTC)
    rows: list[Row] = []
    for file in files:
        with _reported(file):
            rows += [_row(file, one, now) for one in described(file)]
    show_rows(output, rows, columns=_COLUMNS)


def _row(file: Path, one: DescribedCertificate, now: datetime.datetime) -> Row:
    return {
        "file": str(file),
        "subject": one.subject,
        "node": "" if one.node_id is None else one.node_id,
        "hosts": ",".join(one.hosts),
        "expires": f"{one.expires:%Y-%m-%d %H:%M}Z",
        "days_left": (one.expires - now).days,
        "issuer": one.issuer,
    }


def _indented(settings: Mapping[str, str]) -> str:
    return "\n".join(f"  {line}" for line in as_properties(settings).splitlines())


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Errors of files and of what they hold, as messages."""
    try:
        yield
    except StreamlogError as error:
        raise failed(error) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}.") from None
