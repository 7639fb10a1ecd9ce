"""python -m tests.damage [--quick] [--match TEXT] [--jobs N]: each file of a node, each region, each way, who, when.

Prints what came of each, and a table; exit code 1 where anything is wrong.

python -m tests.damage --log damage.log: in pieces; cases that are in the log are not run again (support/pieces.py)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from msgspec import Struct

from tests.damage.case import KILLED, RUNNING, STOPPED, TARGETS, WRONG, Case, outcome_of, scene
from tests.damage.harm import harms, kinds
from tests.damage.scene import TOPICS
from tests.support.pieces import in_processes, run_in_pieces

QUICK = 40
"""Every so manieth case of the whole selection."""


def cases() -> Iterator[Case]:
    for state in (STOPPED, KILLED, RUNNING):
        made = scene(state == KILLED)
        for topic in TOPICS:
            files = made.files[made.leaders[topic]]
            for kind, path in sorted(kinds(files, topic).items()):
                if topic != TOPICS[0] and path.count("/") < 3:  # of the node: once is enough
                    continue
                if topic != TOPICS[0] and kind.startswith("quorum"):
                    continue
                if state == RUNNING and not kind.endswith(" log"):
                    continue  # the other files are read when a node starts
                for harm in harms(kind, path, files[path]):
                    for target in TARGETS:
                        yield Case(topic, harm, target, state)


def chosen(*, quick: bool, match: str) -> list[Case]:
    found = [case for case in cases() if match in str(case)]
    return found[3 :: max(1, len(found) // QUICK)] if quick else found


class Result(Struct, frozen=True, kw_only=True):
    """One line of the log."""

    case: str
    kind: str  # of the file
    what: str
    why: str
    cpu_s: float


def run_case(case: Case) -> Result:
    begin = time.process_time()
    outcome = outcome_of(case)
    cpu_s = round(time.process_time() - begin, 3)
    return Result(case=str(case), kind=case.harm.kind, what=outcome.what, why=outcome.why[:600], cpu_s=cpu_s)


def table(results: Sequence[Result]) -> str:
    rows: dict[str, Counter[str]] = {}
    for result in results:
        rows.setdefault(result.kind, Counter())[result.what] += 1
    rows["all"] = sum(rows.values(), Counter())
    columns = ("harmless", "repaired", "reported", WRONG)
    lines = [f"{'file':<36}" + "".join(f"{column:>10}" for column in columns)]
    lines += [f"{kind:<36}" + "".join(f"{rows[kind][column]:>10}" for column in columns) for kind in sorted(rows)]
    return "\n".join(lines)


def results_of(selected: Sequence[Case], jobs: int, path: Path | None) -> Iterator[Result]:
    if path is None:
        return in_processes(run_case, selected, jobs)
    return run_in_pieces(
        run_case,
        selected,
        kind=Result,
        name_of=str,
        name_of_result=attrgetter("case"),
        jobs=jobs,
        path=path,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"some {QUICK} cases of all")
    parser.add_argument("--match", default="", help="only cases whose name has this in it")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth case")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", type=Path, metavar="FILE", help="skip cases in it, add what is run")
    options = parser.parse_args(arguments)
    selected = chosen(quick=options.quick, match=options.match)[:: options.every]
    results: list[Result] = []
    for result in results_of(selected, options.jobs, options.log):
        results.append(result)
        print(f"{result.what:9} {result.case}: {result.why[:240]}", flush=True)
    print(table(results))
    wrong = [result for result in results if result.what == WRONG]
    for result in wrong:
        print(f"{WRONG} {result.case}: {result.why}")
    cpu_s = sum(result.cpu_s for result in results) / max(1, len(results))
    print(f"{len(results)} cases, {cpu_s:.2f} s of CPU each, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
