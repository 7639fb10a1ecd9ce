"""Files and directories that a command makes, or uses where there are some.

An empty name is refused: it is mostly a variable of the shell that is not set, and pathlib takes it for the current
directory.
"""

from __future__ import annotations

import os
from typing import Any

import click


class GivenPath(click.Path):
    """As click.Path, which refuses an empty name of its own only where the file must exist."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # as click.Path
        if not os.fspath(value):
            kind = "directory" if self.dir_okay else "file"
            here = " ('.' is the current one)" if self.dir_okay else ""
            self.fail(f"the name is empty; give a {kind}{here}, or leave the option out.", param, ctx)
        return super().convert(value, param, ctx)
