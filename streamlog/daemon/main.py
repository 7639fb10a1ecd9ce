"""streamlogd from its arguments to its exit status.

    arguments, settings --problems: one sentence each, status 2--> detach, where asked --> the real ports --> Node.run

Refusals that a user can do something about are one sentence. What the node ends by otherwise is logged, with where it
came from, and the process ends at once: a node that has failed must not be waited for by its own threads.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, TextIO

from streamlog.config import Loaded, load_node, log_settings, print_config
from streamlog.config import node_settings as settings
from streamlog.config.addresses import Protocol
from streamlog.config.not_yet import NOT_YET, REFUSED
from streamlog.daemon.arguments import Arguments, parse_arguments
from streamlog.daemon.background import DaemonFiles, StartReport, detach, remove_pid
from streamlog.daemon.file_limit import raise_file_limit
from streamlog.daemon.log_lines import LogLines
from streamlog.daemon.text_file import read_properties
from streamlog.errors import InvalidConfigError, StreamlogError
from streamlog.ports.malloc import keep_large_blocks
from streamlog.printable import escaped

STOPPED: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 2
INTERNAL_ERROR: Final = 70  # EX_SOFTWARE of sysexits
TRACEBACK_LINES_MAX: Final = 60


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    try:
        config = load(arguments)
        if arguments.print_config:
            sys.stdout.write(print_config(config.config))
            return STOPPED
        _check_supported(config)
    except (InvalidConfigError, OSError) as error:
        return _report_problem(_message(error), USAGE_ERROR)
    for warning in config.warnings:
        sys.stderr.write(f"streamlogd: {escaped(warning)}\n")
    files = DaemonFiles(_log_dirs(config)[0], config.config[settings.NODE_ID])
    parent, out = StartReport(None), sys.stderr
    if arguments.daemon:
        try:
            parent, out = detach(files.log)
        except OSError as error:
            return _report_problem(f"cannot write {files.log}: {error.strerror}", FAILED)
    return _run(config, files, parent, out)


def load(arguments: Arguments) -> Loaded:
    """The settings, with absolute directories. InvalidConfigError, OSError."""
    file = None
    if arguments.properties is not None:
        file = read_properties(arguments.properties)
    loaded = load_node(file, arguments.overrides)
    absolute = [f"{log_settings.LOG_DIRS.name}={','.join(os.path.abspath(path) for path in _log_dirs(loaded))}"]
    metadata = loaded.config[settings.METADATA_LOG_DIR]
    if metadata is not None:
        absolute.append(f"{settings.METADATA_LOG_DIR.name}={os.path.abspath(metadata)}")
    resolved = load_node(file, [*arguments.overrides, *absolute])
    return Loaded(config=resolved.config, given=resolved.given, warnings=loaded.warnings)


def _log_dirs(config: Loaded) -> tuple[str, ...]:
    return config.config[log_settings.LOG_DIRS] or config.config[log_settings.LOG_DIR]


def _check_supported(config: Loaded) -> None:
    (listener,) = config.config[settings.LISTENERS]
    if listener.protocol is not Protocol.PLAINTEXT:
        raise InvalidConfigError(
            f"{settings.LISTENERS.name}={listener}: this release serves PLAINTEXT alone", field=settings.LISTENERS.name
        )
    for name in REFUSED:
        setting = settings.NODE.get(name)
        if setting is not None and config.config[setting] != setting.default:
            raise InvalidConfigError(
                f"{name}: {NOT_YET[name]} in this release; leave it out to run all the same", field=name
            )


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _report_problem(problem: str, status: int) -> int:
    sys.stderr.write("".join(f"streamlogd: {escaped(line)}\n" for line in problem.splitlines()))
    return status


def _run(config: Loaded, files: DaemonFiles, parent: StartReport, out: TextIO) -> int:
    keep_large_blocks()
    file_limit = raise_file_limit()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would say is told by the node, in a sentence
    lines = LogLines(config.config[settings.NODE_ID], out)
    try:
        # What the node needs is loaded here: an argument in error, or --help, is told without it.
        from streamlog.daemon.serving import serve
        from streamlog.ports.system import run

        run(serve(config, files, parent, lines, file_limit))
    except (StreamlogError, OSError) as error:
        problem = _message(error)
        lines.write("ERROR", f"stopped: {problem}")
        parent.tell(problem)
        _exit(FAILED, files, out)
    except BaseException as error:  # noqa: BLE001  told and ended with, whatever it is
        lines.write("ERROR", f"stopped by a defect: {error!r}\n{_traceback_tail(error)}")
        parent.tell(f"stopped by a defect: {error!r}")
        _exit(INTERNAL_ERROR, files, out)
    return STOPPED


def _traceback_tail(error: BaseException) -> str:
    """Where it was raised: of many lines (groups of tasks, one error behind the other) the last."""
    lines = "".join(traceback.format_exception(error)).splitlines(keepends=True)
    left_out = len(lines) - TRACEBACK_LINES_MAX
    return "".join(lines if left_out <= 0 else [f"... {left_out} lines before ...\n", *lines[left_out:]])


def _exit(status: int, files: DaemonFiles, out: TextIO) -> None:
    """At once, whatever else fails: a thread may hang in a disk that does not answer."""
    try:
        remove_pid(files.pid)
        out.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
