"""The command line of streamlogd. Kafka's own (kafka-server-start.sh) is understood: `-daemon`, `--override k=v`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from msgspec import Struct

from streamlog.release import RELEASE

_EPILOG = """\
Without a file, the defaults hold for all but what --override says; node.id has none.
SIGTERM and Ctrl-C stop the node in good order: leaderships are handed over first. A second one stops it at once.
Exit status: 0 stopped; 1 a disk, the network or the cluster; 2 arguments or settings; 70 a defect of streamlog itself.
"""


class Arguments(Struct, frozen=True, kw_only=True):
    properties: str | None  # path
    overrides: tuple[str, ...]  # name=value each
    daemon: bool
    print_config: bool


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """SystemExit for --help, --version, and for what cannot be understood (status 2)."""
    parser = argparse.ArgumentParser(
        prog="streamlogd",
        description="Run one node of a streamlog cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="the node's settings")
    parser.add_argument(
        "--override", action="append", default=[], metavar="name=value", help="a setting that goes before the file's"
    )
    parser.add_argument("-daemon", "--daemon", action="store_true", help="run in the background")
    parser.add_argument("--print-config", action="store_true", help="show all settings as they hold, and end")
    parser.add_argument("--version", action="version", version=f"streamlogd {RELEASE}")
    found = parser.parse_args(argv)
    return Arguments(
        properties=found.properties,
        overrides=tuple(found.override),
        daemon=found.daemon,
        print_config=found.print_config,
    )
