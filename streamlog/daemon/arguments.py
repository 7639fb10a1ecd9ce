"""The command line of streamlogd. It accepts that of kafka-server-start.sh: `-daemon`, `--override k=v`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from msgspec import Struct

from streamlog.release import RELEASE

_EPILOG = """\
Without a file, settings have their defaults or the value of --override; node.id has no default.
SIGTERM and Ctrl-C shut the node down: leaderships are handed over first. A second signal stops it at once.
Exit status: 0 stopped; 1 disk, network or cluster error; 2 wrong arguments or settings; 70 internal error.
"""


class Arguments(Struct, frozen=True, kw_only=True):
    properties: str | None  # path
    overrides: tuple[str, ...]  # name=value each
    daemon: bool
    print_config: bool


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """SystemExit for --help, --version, and for invalid arguments (status 2)."""
    parser = argparse.ArgumentParser(
        prog="streamlogd",
        description="Run one node of a streamlog cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="the node's settings")
    parser.add_argument(
        "--override", action="append", default=[], metavar="name=value", help="a setting that overrides the file's"
    )
    parser.add_argument("-daemon", "--daemon", action="store_true", help="run in the background")
    parser.add_argument("--print-config", action="store_true", help="print all effective settings and exit")
    parser.add_argument("--version", action="version", version=f"streamlogd {RELEASE}")
    found = parser.parse_args(argv)
    return Arguments(
        properties=found.properties,
        overrides=tuple(found.override),
        daemon=found.daemon,
        print_config=found.print_config,
    )
