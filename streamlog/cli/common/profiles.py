"""Named clusters in a file: what `streamlogctl profile` edits and `--profile` names.

The file is profiles.toml in ~/.config/streamlog (XDG_CONFIG_HOME), or the one that STREAMLOG_PROFILES names:

    current = "prod"

    [profiles."prod"]
    bootstrap_servers = "node1:9092,node2:9092"
    command_config = "/home/anna/prod.properties"

It has no secrets: those are in the properties file of `command_config`. A write replaces the whole file, under a lock:
readers see the old file or the new one, and of two writers neither undoes the other's change. Only its owner can read
it. Keys other than these are refused, so that a misspelt one has no silent effect, and a write loses none; comments
that were added by hand are not kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct, field

from streamlog.config.addresses import parse_address
from streamlog.daemon.text_file import private
from streamlog.printable import escaped
from streamlog.regular_file import read_regular

FILE_ENVIRONMENT: Final = "STREAMLOG_PROFILES"
PROFILE_ENVIRONMENT: Final = "STREAMLOG_PROFILE"
_BYTES_MAX: Final = 1 << 20
_FOLDER_MODE: Final = 0o700
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER: Final = "# Written by 'streamlogctl profile'; comments are not kept.\n"


class Profile(Struct, frozen=True, kw_only=True):
    name: str
    servers: tuple[str, ...]  # host:port, at least one
    command_config: str | None = None  # absolute


class Profiles(Struct, frozen=True, kw_only=True):
    current: str | None = None  # one of `by_name`
    by_name: Mapping[str, Profile] = field(default_factory=dict)


def read_profiles() -> Profiles:
    """Empty where there is no file. ClickException."""
    path = _path()
    return Profiles() if path is None else _read(path)


def change_profiles(change: Callable[[Profiles], Profiles]) -> None:
    """Replaces the file by `change` of it. ClickException, also of `change`: the file is unchanged."""
    path = _path()
    if path is None:
        raise click.ClickException(f"The home directory is unknown: name a file for profiles with {FILE_ENVIRONMENT}.")
    file = Path(os.path.realpath(path))  # a link stays one
    beside = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
        with open(file.with_name(f".{file.name}.lock"), "w", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data = _text(change(_read(path))).encode()
            if len(data) > _BYTES_MAX:
                raise click.ClickException(f"{path} would exceed {_BYTES_MAX:,} bytes: delete profiles first.")
            beside.unlink(missing_ok=True)
            with open(beside, "xb", opener=private) as new:
                new.write(data)
                new.flush()
                os.fsync(new.fileno())
            beside.replace(file)
    except OSError as problem:
        raise click.ClickException(
            f"{path} cannot be written: {problem.strerror}: make it writable, or name another file with "
            f"{FILE_ENVIRONMENT}."
        ) from None


def unknown_profile(name: str, profiles: Profiles) -> str:
    """The problem, and what to do."""
    if not profiles.by_name:
        return (
            f"there is no profile {name!r}: there are none; create it with 'streamlogctl profile create NAME "
            "--bootstrap-server HOST:PORT'."
        )
    return f"there is no profile {name!r}: list the profiles with 'streamlogctl profile list'."


def name_problem(name: str) -> str:
    """Empty: it can be the name of a profile."""
    if _NAME.fullmatch(name):
        return ""
    return f"{name!r}: must be at most 64 letters, digits, '.', '_' and '-', of which the first is a letter or digit"


def parse_servers(text: str) -> tuple[str, ...]:
    """`host:port,host:port`. ValueError."""
    return tuple(str(parse_address(one.strip())) for one in text.split(",") if one.strip())


def profile_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For shell completion; none where the file cannot be read."""
    try:
        return [name for name in read_profiles().by_name if name.startswith(incomplete)]
    except click.ClickException:
        return []


def _path() -> Path | None:
    """None: no home directory is known."""
    if named := os.environ.get(FILE_ENVIRONMENT):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # others are to be ignored, by the XDG specification
        return Path(base, "streamlog", "profiles.toml")
    try:
        return Path.home() / ".config" / "streamlog" / "profiles.toml"
    except RuntimeError:
        return None


def _read(path: Path) -> Profiles:
    try:
        data, _ = read_regular(path, _BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as problem:
        if _is_out_of_sight(path, problem):
            return Profiles()
        raise click.ClickException(
            f"{path} cannot be read: {problem.strerror}: make it readable, or name another file of profiles with "
            f"{FILE_ENVIRONMENT}."
        ) from None
    return _parsed(data, path) if data else Profiles()


def _is_out_of_sight(path: Path, problem: OSError) -> bool:
    """In another user's home directory (HOME kept by sudo, ProtectHome of systemd): no file of this user's, and no
    reason for commands to fail.
    """
    if os.environ.get(FILE_ENVIRONMENT) or not isinstance(problem, PermissionError):
        return False
    try:
        os.lstat(path)
    except OSError:
        return True
    return False


def _parsed(data: bytes, path: Path) -> Profiles:
    import tomllib  # most commands start faster without

    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError as problem:
        raise _malformed(path, f"byte {problem.start} is not UTF-8") from None
    except (ValueError, RecursionError) as problem:
        raise _malformed(path, f"not TOML: {problem}") from None
    _check_keys(document, ("current", "profiles"), path, "")
    tables, current = document.get("profiles", {}), document.get("current")
    if not isinstance(tables, dict):
        raise _malformed(path, "profiles must be tables, such as [profiles.NAME]")
    profiles = {name: _profile(name, table, path) for name, table in tables.items()}
    if current is not None and not (isinstance(current, str) and current in profiles):
        raise _malformed(path, f"current is {current!r}, which is not the name of a profile in it")
    return Profiles(current=current, by_name=profiles)


def _profile(name: str, table: object, path: Path) -> Profile:
    if problem := name_problem(name):
        raise _malformed(path, f"the profile's name {problem}")
    where = f"profiles.{name}"
    if not isinstance(table, dict):
        raise _malformed(path, f"{where} must be a table, such as [profiles.{name}]")
    _check_keys(table, ("bootstrap_servers", "command_config"), path, f"{where}.")
    text, command_config = table.get("bootstrap_servers"), table.get("command_config")
    try:
        servers = parse_servers(text) if isinstance(text, str) else ()
    except ValueError as problem:
        raise _malformed(path, f"{where}.bootstrap_servers: {text!r}: {problem}") from None
    if not servers:
        raise _malformed(path, f'{where}.bootstrap_servers must be a text, such as "node1:9092,node2:9092"')
    if command_config is not None and not (isinstance(command_config, str) and os.path.isabs(command_config)):
        raise _malformed(path, f"{where}.command_config must be an absolute path")
    return Profile(name=name, servers=servers, command_config=command_config)


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], path: Path, where: str) -> None:
    for key in table:
        if key not in known:
            raise _malformed(path, f"{where}{key}: unknown key; there are {' and '.join(known)}")


def _malformed(path: Path, problem: str) -> click.ClickException:
    return click.ClickException(
        f"{escaped(f'{path}: {problem}')}: correct it, or delete the file and create its profiles again with "
        "'streamlogctl profile create'."
    )


def _text(profiles: Profiles) -> str:
    parts = [_HEADER] if profiles.current is None else [f"{_HEADER}current = {_quoted(profiles.current)}\n"]
    for profile in profiles.by_name.values():
        lines = [f"[profiles.{_quoted(profile.name)}]", f"bootstrap_servers = {_quoted(','.join(profile.servers))}"]
        if profile.command_config is not None:
            lines.append(f"command_config = {_quoted(profile.command_config)}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but that DEL is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
