"""What a run has seen, as text."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from .messages import Case


class Report(Struct):
    seed: int
    calls: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # method, how it ended
    failures: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures

    def lines(self) -> Iterator[str]:
        by_method: dict[str, Counter[str]] = {}
        for (method, ended), count in self.outcomes.items():
            by_method.setdefault(method, Counter())[ended] += count
        width = max(map(len, by_method), default=0)
        yield f"{'method'.ljust(width)}  calls  how they ended"
        for method, ends in sorted(by_method.items()):
            shown = ", ".join(f"{ended} {count}" for ended, count in ends.most_common())
            yield f"{method.ljust(width)}  {ends.total():5}  {shown}"
        totals: Counter[str] = Counter()
        for (_, ended), count in self.outcomes.items():
            totals[ended.partition(" ")[0]] += count
        yield f"{self.calls} calls of {len(by_method)} methods, seed {self.seed}: " + ", ".join(
            f"{status} {count}" for status, count in totals.most_common()
        )
        yield from self.facts
        for failure in self.failures:
            yield f"FAILED: {failure}"
        yield "nothing failed" if self.ok else f"{len(self.failures)} failures; seed {self.seed}"


def save(case: Case, folder: Path) -> Path:
    """For `--replay`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"case-{case.seed}-{case.number}.json"
    document = {name: getattr(case, name) for name in case.__struct_fields__}
    document["messages"] = [base64.b64encode(message).decode() for message in case.messages]
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def load(path: Path) -> Case:
    document = json.loads(path.read_text())
    document["messages"] = tuple(base64.b64decode(message) for message in document["messages"])
    document["metadata"] = tuple((key, value) for key, value in document["metadata"])
    return Case(**document)
