"""Settings of pipelines: key=value, from a table; unknown and missing ones are refused. Pure.

spark.*        of the session;     streamlog.*    of the clients;     others    the pipeline's own
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from streamlog.spark.failures import OptionError


class PipelineSetting(Struct, frozen=True):
    name: str
    default: str | None  # None: it must be given
    doc: str


COMMON: Final = (
    PipelineSetting("bootstrap.servers", None, "Nodes of the cluster, host:port,..."),
    PipelineSetting("checkpoint", None, "A folder or URL for the pipeline's progress; a restart resumes from there."),
    PipelineSetting(
        "trigger",
        "",
        "When a micro-batch starts: empty: as soon as there are records; a duration such as 10 seconds; or"
        " available-now: read all existing records, and end.",
    ),
    PipelineSetting("max.offsets.per.trigger", "", "Maximum number of offsets in a micro-batch. Empty: no limit."),
)
_PASSED_ON: Final = ("spark.", "streamlog.")
AVAILABLE_NOW: Final = "available-now"


class PipelineSettings:
    """Valid settings. `settings[name]` is "" where neither a value nor a default is given."""

    def __init__(self, table: Sequence[PipelineSetting], given: Mapping[str, str]) -> None:
        """OptionError."""
        names = {one.name: one for one in table}
        own = {name: text for name, text in given.items() if not name.startswith(_PASSED_ON)}
        for name in own:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                raise OptionError(name, "is not known" + (f"; did you mean {near[0]}?" if near else ""))
        for one in table:
            if one.default is None and not own.get(one.name, "").strip():
                raise OptionError(one.name, f"must be given, by --conf {one.name}=...: {one.doc}")
        self._own = {one.name: own.get(one.name, one.default or "").strip() for one in table}
        self.spark = {name: text for name, text in given.items() if name.startswith("spark.")}
        self._clients = {name: text for name, text in given.items() if name.startswith("streamlog.")}

    def __getitem__(self, name: str) -> str:
        return self._own[name]

    def list(self, name: str) -> list[str]:
        """The items of a,b,c."""
        return [one.strip() for one in self._own[name].split(",") if one.strip()]

    @property
    def clients(self) -> dict[str, str]:
        """The options of format("streamlog") for the connection to the cluster."""
        return {**self._clients, "streamlog.bootstrap.servers": self["bootstrap.servers"]}

    def source(self, **more: str) -> dict[str, str]:
        """The options of a source."""
        limit = self._own.get("max.offsets.per.trigger", "")
        return {**self.clients, **({"maxOffsetsPerTrigger": limit} if limit else {}), **more}

    def checkpoint(self, query: str) -> str:
        return f"{self['checkpoint'].rstrip('/')}/{query}"
