"""`streamlogctl console alarms`: checks a file of rules, and tests its channels, without a console or a cluster."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from streamlog.console.alarms.settings.rule_file import AlarmSettings


def not_installed(error: ModuleNotFoundError) -> click.ClickException:
    return click.ClickException(
        f"the console needs packages that are not installed ({error.name}): pip install 'streamlog[console]'."
    )


@click.group("alarms")
def alarm_commands() -> None:
    """Check a file of alarm rules, and test its channels."""


_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@alarm_commands.command
@_FILE
def check(file: Path) -> None:
    """Check a file of alarm rules and channels. Exit code 1 with all errors where it is not valid.

    \b
    Example:
      streamlogctl console alarms check alarms.toml
    """
    settings = _settings(file)
    own, channels = len(settings.own), len(settings.channels)
    off = sum(not rule.enabled for rule in settings.rules.values())
    defaults = len(settings.rules) - own
    click.echo(f"{file}: valid: {own} rules and {defaults} default ones ({off} disabled), {channels} channels.")


@alarm_commands.command("test")
@_FILE
@click.option("--channel", metavar="NAME", multiple=True, help="This channel only; may be repeated.")
def test_channels(file: Path, channel: tuple[str, ...]) -> None:
    """Send a test notification to each channel of a file. Exit code 1 where one failed.

    \b
    Example:
      streamlogctl console alarms test alarms.toml --channel ops
    """
    settings = _settings(file)
    if unknown := [name for name in channel if name not in settings.channels]:
        raise click.ClickException(
            f"{file} defines no channel {unknown[0]}; it has {', '.join(settings.channels) or 'none'}."
        )
    names = channel or tuple(settings.channels)
    if not names:
        raise click.ClickException(f"{file} defines no channels: add a table [channels.NAME].")
    failures = asyncio.run(_test(settings, names))
    for name, failure in failures.items():
        click.echo(f"{name}: {failure or 'delivered'}")
    if any(failures.values()):
        raise click.ClickException(f"{sum(map(bool, failures.values()))} of {len(failures)} channels failed.")


def _settings(file: Path) -> AlarmSettings:
    try:
        from streamlog.console.alarms.settings.rule_file import RuleFileError
        from streamlog.console.alarms.settings.rule_storage import check_file
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    try:
        return check_file(file)
    except RuleFileError as error:
        raise click.ClickException("\n".join(error.problems)) from None
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}.") from None


async def _test(settings: AlarmSettings, names: tuple[str, ...]) -> dict[str, str]:
    from streamlog.console.alarms.engine import trial_notice, try_channel

    failures = await asyncio.gather(
        *(try_channel(settings.channels[name], trial_notice("", time.time())) for name in names)
    )
    return dict(zip(names, failures, strict=True))
