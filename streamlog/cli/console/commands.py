"""`streamlogctl console`: the web console."""

from __future__ import annotations

import errno
import ipaddress
import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from streamlog.cli.common.failures import Interrupted, failed
from streamlog.cli.common.paths import GivenPath
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.console.alarms import alarm_commands
from streamlog.cli.console.users import console_failures, data_options, user
from streamlog.errors import StreamlogError

PORT: Final = 8048
_PORTS: Final = {"http": 80, "https": 443}

_PATH: Final = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.group(invoke_without_command=True)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Other than loopback: needs users."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0: any free port.")
@data_options
@click.option("--access", metavar="FILE", type=_PATH, help="Hidden values, masks, single sign-on, as TOML.")
@click.option("--tls-cert", metavar="FILE", type=_PATH, help="Serve HTTPS with this certificate (PEM, with its chain).")
@click.option("--tls-key", metavar="FILE", type=_PATH, help="The key of the certificate.")
@click.option("--public-url", metavar="URL", default="", help="The address of a proxy in front, as browsers see it.")
@click.option(
    "--forwarded-from",
    metavar="ADDRESSES",
    default="",
    help="Addresses of proxies whose X-Forwarded headers are trusted.",
)
@click.option(
    "--alarms",
    metavar="FILE",
    type=GivenPath(dir_okay=False, path_type=Path),
    help="The file of alarm rules and channels.  [default: alarms.toml in the data directory]",
)
@cluster_options
def console(
    target: Target,
    host: str,
    port: int,
    data: Path,
    database: str,
    alarms: Path | None,
    access: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    public_url: str,
    forwarded_from: str,
) -> None:
    """Show the cluster in a browser: health, topics, records, groups and their lag over time.

    Runs until Ctrl-C. On this machine's loopback address it needs no users; elsewhere, and as soon as there are some,
    everyone logs in. Needs 'pip install streamlog[console]'.

    \b
    Examples:
      streamlogctl console
      streamlogctl console --bootstrap-server node1:9092 --port 8050 --data /var/lib/streamlog-console
      streamlogctl console user add alice --role admin
      streamlogctl console --host 0.0.0.0 --tls-cert console.pem --tls-key console.key
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("Give --tls-cert and --tls-key together.")
    public_origin = origin_of(public_url) if public_url else ""
    check_proxies(forwarded_from)
    with console_failures():
        from streamlog.console.server import ServerOptions, serve

        options = ServerOptions(
            data=data,
            database=database,
            host=host,
            port=port,
            tls_cert=tls_cert,
            tls_key=tls_key,
            public_url=public_origin,
            forwarded_from=forwarded_from,
            access_file=access,
            alarms=alarms,
        )
        try:
            serve(target.settings, options, _announce)
        except KeyboardInterrupt:
            raise Interrupted from None
        except StreamlogError as error:
            raise failed(error) from None
        except OSError as error:
            where = error.filename or f"{host} port {port}"
            if error.errno == errno.EADDRINUSE:  # whose text repeats the address
                raise click.ClickException(f"{where}: {os.strerror(error.errno)}: give another --port.") from None
            raise click.ClickException(f"{where}: {error.strerror or error}.") from None


def _announce(text: str) -> None:
    """A service needs no standard output."""
    with suppress(OSError):
        click.echo(text)


def origin_of(url: str) -> str:
    """As browsers send it, with which it is compared: the host in lower case, no default port. UsageError."""
    wrong = click.UsageError(f"--public-url {url}: give scheme and host alone, such as https://console.example.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        raise wrong from None
    beyond = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in _PORTS or not host or beyond:
        raise wrong
    shown_port = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{shown_port}"


def check_proxies(addresses: str) -> None:
    """UsageError. A name would never match; with all addresses, each client could choose its own."""
    for one in filter(None, map(str.strip, addresses.split(","))):
        try:
            network = ipaddress.ip_network(one, strict=False)
        except ValueError:
            raise click.UsageError(
                f"--forwarded-from {one}: give IP addresses or networks, such as 10.0.0.5 or 10.0.0.0/24."
            ) from None
        if not network.prefixlen:
            raise click.UsageError(f"--forwarded-from {one}: give the addresses of the proxies alone.")


console.add_command(alarm_commands)
console.add_command(user)
