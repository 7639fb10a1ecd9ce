"""python -m tests.damage [--quick] [--match TEXT] [--jobs N]: each file of a node, each region, each way, who, when.

Prints what came of each, and a table; exit code 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.damage.case import KILLED, RUNNING, STOPPED, TARGETS, WRONG, Case, Outcome, outcome_of, scene
from tests.damage.harm import harms, kinds
from tests.damage.scene import TOPICS

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


def table(results: Sequence[tuple[Case, Outcome]]) -> str:
    rows: dict[str, Counter[str]] = {}
    for case, outcome in results:
        rows.setdefault(case.harm.kind, Counter())[outcome.what] += 1
    columns = ("harmless", "repaired", "reported", WRONG)
    lines = [f"{'file':<36}" + "".join(f"{column:>10}" for column in columns)]
    lines += [f"{kind:<36}" + "".join(f"{rows[kind][column]:>10}" for column in columns) for kind in sorted(rows)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"some {QUICK} cases of all")
    parser.add_argument("--match", default="", help="only cases whose name has this in it")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth case")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    begun = time.monotonic()
    selected = chosen(quick=arguments.quick, match=arguments.match)[:: arguments.every]
    results: list[tuple[Case, Outcome]] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for case, outcome in zip(selected, pool.map(outcome_of, selected, chunksize=4), strict=True):
            results.append((case, outcome))
            print(f"{outcome.what:9} {case}: {outcome.why[:240]}", flush=True)
    print(table(results))
    wrong = sum(outcome.what == WRONG for _, outcome in results)
    print(f"{len(results)} cases in {time.monotonic() - begun:.0f} s, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
