"""`streamlogctl dump`: prints the files of a log.

`streamlog.storage.dump` reads them, `classic` and `as_json` format the items; here are the options, the choice of
the output stream and the exit code. Files are opened read-only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, Protocol

import click

from streamlog.cli.common.progress import progress
from streamlog.cli.dump import as_json, classic
from streamlog.errors import StreamlogError
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.printable import escaped, escaped_json
from streamlog.storage.dump import Batch, Damage, FileKind, IndexMode, Item, LogRecord, kind_of, read

_DAMAGED: Final = 1
_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


class _Format(Protocol):
    def __call__(self, path: str, item: Item, *, with_data: bool, offsets: bool) -> str | None: ...


_FORMATS: Final[dict[str, _Format]] = {"classic": classic.line, "json": as_json.line}


@click.command
@click.argument("files", metavar="FILE...", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("--files", "listed", metavar="FILE,...", multiple=True, help="As FILE, separated by commas.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(list(_FORMATS)),
    default="classic",
    show_default=True,
    help="classic: the format of Kafka's DumpLogSegments; json: one object on a line, bytes in base64.",
)
@click.option(
    "--deep-iteration/--shallow-iteration",
    "deep",
    default=True,
    show_default=True,
    help="One line for each record, with compressed batches unpacked; or one for each batch.",
)
@click.option(
    "--print-data-log/--no-print-data-log",
    "with_data",
    default=True,
    show_default=True,
    help="With or without keys and payloads of records.",
)
@click.option(
    "--offsets-decoder", "offsets", is_flag=True, help="Decode keys and payloads as records of __consumer_offsets."
)
@click.option("--raw", is_flag=True, help="On a terminal too, print keys and values without escaping.")
@click.option(
    "--verify-index-only",
    "verify_only",
    is_flag=True,
    help="Check the indexes among FILE against the logs beside them; print only errors.",
)
@click.option(
    "--index-sanity-check",
    "sanity_only",
    is_flag=True,
    help="Only check whether a start would accept the indexes among FILE.",
)
def dump(
    files: tuple[str, ...],
    listed: tuple[str, ...],
    output: str,
    *,
    raw: bool,
    deep: bool,
    with_data: bool,
    offsets: bool,
    verify_only: bool,
    sanity_only: bool,
) -> None:
    """Print the files of a log: .log, .index, .timeindex, .txnindex, .snapshot and checkpoints, of streamlog or of
    Kafka. They are opened read-only.

    Corrupt files are reported on standard error, with position and reason; the intact parts before and after are
    printed.

    \b
    Examples:
      streamlogctl dump orders-0/00000000000000000000.log
      streamlogctl dump --output json orders-0/*.log | jq -r .value.text
      streamlogctl dump --shallow-iteration orders-0/*.log
      streamlogctl dump --verify-index-only orders-0/*
      streamlogctl dump --offsets-decoder __consumer_offsets-41/*.log

    \b
    Exit code: 0 all files are intact, 1 some are corrupt or cannot be read, 2 wrong usage.
    """
    files += tuple(_existing(path) for text in listed for path in text.split(",") if path)
    if not files:
        raise click.UsageError("Give a file: FILE, or --files FILE,....")
    if verify_only and sanity_only:
        raise click.UsageError("--verify-index-only and --index-sanity-check are mutually exclusive: give one of them.")
    mode = IndexMode.VERIFY if verify_only else IndexMode.SANITY if sanity_only else IndexMode.ENTRIES
    shown = _shown(output, raw=raw)
    with closing(PosixFileSystem()) as fs:
        printer = _Printer(
            fs, shown=shown, output=_FORMATS[output], with_data=with_data, offsets=offsets, verify_only=verify_only
        )
        for path in _chosen(files, indexes_only=verify_only or sanity_only):
            if output == "classic":
                sys.stdout.write(shown(classic.heading(path)) + "\n")
            printer.print_file(path, deep=deep, mode=mode)
    sys.stdout.flush()
    if printer.damaged:
        sys.exit(_DAMAGED)


def _existing(path: str) -> str:
    if not os.path.isfile(path):
        raise click.BadParameter(f"File {path!r} does not exist.", param_hint="--files")
    return path


def _chosen(files: tuple[str, ...], *, indexes_only: bool) -> list[str]:
    """The files to read, in the order given."""
    known = [(path, kind) for path in files if (kind := kind_of(path)) is not None]
    if indexes_only:
        chosen = [path for path, kind in known if kind in _INDEXES]
        if not chosen:
            raise click.UsageError("there is no .index or .timeindex among the files: give one, e.g. orders-0/*index.")
        return chosen
    if not known:
        raise click.UsageError(
            f"{files[0]} does not have the name of a log's file: give .log, .index, .timeindex, .txnindex, .snapshot "
            "or checkpoint files (an index is named by its base offset, as 00000000000000000000.index)."
        )
    for path in files:
        if kind_of(path) is None:
            click.echo(f"Ignoring {escaped(path)}: it does not have the name of a log's file.", err=True)
    return [path for path, _ in known]


def _shown(output: str, *, raw: bool) -> Callable[[str], str]:
    """The escaping of a line, which may contain keys and values of any client."""
    if raw or not sys.stdout.isatty():
        return str
    return escaped if output == "classic" else escaped_json


class _Printer:
    """Prints items to standard output and damage to standard error; `damaged`: there was any."""

    def __init__(
        self,
        fs: PosixFileSystem,
        *,
        shown: Callable[[str], str],
        output: _Format,
        with_data: bool,
        offsets: bool,
        verify_only: bool,
    ) -> None:
        self.damaged = False
        self._shown = shown
        self._output = output
        self._with_data = with_data
        self._offsets = offsets
        self._verify_only = verify_only
        self._fs = fs

    def print_file(self, path: str, *, deep: bool, mode: IndexMode) -> None:
        try:
            size = os.path.getsize(path)
        except OSError as e:  # a running node deletes files
            self._complain(f"{path}: {e.strerror}")
            return
        with progress(os.path.basename(path), size) as advance:
            for item in self._items(path, deep=deep, mode=mode):
                self._print(path, item)
                advance(_position(item))

    def _items(self, path: str, *, deep: bool, mode: IndexMode) -> Iterator[Item]:
        """The file's items, up to where it cannot be read."""
        try:
            yield from read(self._fs, os.path.abspath(path), deep=deep, index_mode=mode)
        except OSError as e:
            self._complain(f"{path}: {e.strerror}")
        except StreamlogError as e:
            self._complain(str(e))

    def _print(self, path: str, item: Item) -> None:
        if isinstance(item, Damage):
            self._complain(classic.damage_line(path, item))
        elif not self._verify_only:
            line = self._output(path, item, with_data=self._with_data, offsets=self._offsets)
            if line is not None:
                sys.stdout.write(self._shown(line) + "\n")

    def _complain(self, text: str) -> None:
        self.damaged = True
        sys.stdout.flush()  # keeps the order of the two streams on a terminal
        click.echo(escaped(text), err=True)


def _position(item: Item) -> int:
    """The position in the file, for items of long files; 0 for others."""
    match item:
        case Batch():
            return item.position
        case LogRecord():
            return item.batch.position
        case _:
            return 0
