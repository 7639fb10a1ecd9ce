"""`streamlogctl completion`: scripts that complete commands and options in a shell."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

_VARIABLE: Final = "_STREAMLOGCTL_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")


@click.command
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    Examples:
      source <(streamlogctl completion bash)          # in ~/.bashrc
      source <(streamlogctl completion zsh)           # in ~/.zshrc
      streamlogctl completion fish > ~/.config/fish/completions/streamlogctl.fish
    """
    kind = get_completion_class(shell)
    root = context.find_root().command
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}: use one of {', '.join(_SHELLS)}.")
    click.echo(kind(root, {}, "streamlogctl", _VARIABLE).source())
