"""streamlogd from its arguments to its exit status.

    arguments, settings --errors: one message each, status 2--> detach, if requested --> the real ports --> Node.run

Errors that a user can fix are one message. Any other error that stops the node is logged with its traceback, and the
process exits at once: the exit of a failed node must not wait for its threads.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, cast

from streamlog.aio.standard_streams import open_standard_streams
from streamlog.config import Loaded, load_node, print_config
from streamlog.config.settings import log_settings
from streamlog.config.settings import node_settings as settings
from streamlog.config_providers import read_reference
from streamlog.daemon.arguments import Arguments, parse_arguments
from streamlog.daemon.background import DaemonFiles, StartReport, detach, remove_pid
from streamlog.daemon.file_limit import raise_file_limit
from streamlog.daemon.logs.library_logs import install
from streamlog.daemon.logs.log_lines import LogLines, LogOutput
from streamlog.daemon.text_file import read_properties
from streamlog.daemon.tls import check_tls
from streamlog.daemon.tracing_choice import check_tracing
from streamlog.errors import InvalidConfigError, StreamlogError
from streamlog.ports.log_levels import LogLevels
from streamlog.ports.malloc import keep_large_blocks
from streamlog.printable import escaped

STOPPED: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 2
INTERNAL_ERROR: Final = 70  # EX_SOFTWARE of sysexits
TRACEBACK_LINES_MAX: Final = 60


def main(argv: Sequence[str] | None = None) -> int:
    open_standard_streams()
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    try:
        config = load(arguments)
        if arguments.print_config:
            sys.stdout.write(print_config(config.config))
            return STOPPED
        _check_supported(config)
    except (InvalidConfigError, OSError) as error:
        return _report_problem(_message(error), USAGE_ERROR)
    as_json = config.config[settings.LOG_FORMAT] == "json"
    if arguments.daemon or not as_json:  # else stderr is the log
        for warning in config.warnings:
            sys.stderr.write(f"streamlogd: {escaped(warning)}\n")
    files = DaemonFiles(_log_dirs(config)[0], config.config[settings.NODE_ID])
    start_report, out = StartReport(None), cast(LogOutput, sys.stderr)
    if arguments.daemon:
        try:
            start_report, out = detach(
                files.log,
                max_bytes=config.config[settings.DAEMON_LOG_MAX_BYTES],
                kept=config.config[settings.DAEMON_LOG_COUNT] - 1,
            )
        except OSError as error:
            return _report_problem(f"cannot write {files.log}: {error.strerror}", FAILED)
    return _run(config, files, start_report, out)


def load(arguments: Arguments) -> Loaded:
    """The settings, with absolute directories. InvalidConfigError, OSError."""
    file = None
    if arguments.properties is not None:
        file = read_properties(arguments.properties)
    loaded = load_node(file, arguments.overrides, read=read_reference)
    absolute = [f"{log_settings.LOG_DIRS.name}={','.join(os.path.abspath(path) for path in _log_dirs(loaded))}"]
    metadata = loaded.config[settings.METADATA_LOG_DIR]
    if metadata is not None:
        absolute.append(f"{settings.METADATA_LOG_DIR.name}={os.path.abspath(metadata)}")
    resolved = load_node(file, [*arguments.overrides, *absolute], read=read_reference)
    return Loaded(config=resolved.config, given=resolved.given, warnings=loaded.warnings)


def _log_dirs(config: Loaded) -> tuple[str, ...]:
    return config.config[log_settings.LOG_DIRS] or config.config[log_settings.LOG_DIR]


def _check_supported(config: Loaded) -> None:
    check_tls(config.config)
    check_tracing(config.config)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _report_problem(problem: str, status: int) -> int:
    sys.stderr.write("".join(f"streamlogd: {escaped(line)}\n" for line in problem.splitlines()))
    return status


def _run(config: Loaded, files: DaemonFiles, start_report: StartReport, out: LogOutput) -> int:
    keep_large_blocks()
    file_limit = raise_file_limit()
    levels = LogLevels()
    as_json = config.config[settings.LOG_FORMAT] == "json"
    lines = LogLines(config.config[settings.NODE_ID], out, levels=levels, as_json=as_json)
    install(lines, levels)
    if as_json:
        for warning in config.warnings:
            lines.write("WARN", warning)
    try:
        # The node's modules are loaded here: --help and errors in arguments do not need them.
        from streamlog.daemon.serving import serve
        from streamlog.ports.system import run

        run(serve(config, files, start_report, lines, levels, file_limit))
    except (StreamlogError, OSError) as error:
        problem = _message(error)
        lines.write("ERROR", f"stopped: {problem}")
        start_report.send(problem)
        _exit(FAILED, files, out)
    except BaseException as error:  # noqa: BLE001  logged, then the process exits
        lines.write("ERROR", f"stopped by an internal error: {error!r}\n{_traceback_tail(error)}")
        start_report.send(f"stopped by an internal error: {error!r}")
        _exit(INTERNAL_ERROR, files, out)
    return STOPPED


def _traceback_tail(error: BaseException) -> str:
    """The last lines of its traceback, which is long for nested groups and chained errors."""
    lines = "".join(traceback.format_exception(error)).splitlines(keepends=True)
    left_out = len(lines) - TRACEBACK_LINES_MAX
    return "".join(lines if left_out <= 0 else [f"... {left_out} lines before ...\n", *lines[left_out:]])


def _exit(status: int, files: DaemonFiles, out: LogOutput) -> None:
    """Exit at once, whatever else fails: a thread may hang on a disk that does not respond."""
    try:
        remove_pid(files.pid)
        out.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
