"""The nemesis from the command line (`make nemesis`).

python -m tests.nemesis --minutes 10 --seed 7     rounds of faults on real processes, for so long
python -m tests.nemesis --seed 7 --print-plan     what would be done
... --nodes 5 --kinds "power all,kill" --events 3 --plant no_sync
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.nemesis.faults import sandbox
from tests.nemesis.faults.machine import Needs, Tools, lacking
from tests.nemesis.faults.plan import LASTS_S, Event, Kind, draw_plan
from tests.nemesis.results import report
from tests.nemesis.results.findings import Findings

from .round import Result, Round, Settings

ROUND_S: Final = 180.0
"""Of faults in one cluster; then it is healed, read and checked, and the next one is made."""
INTERRUPTED: Final = 130
PLANTED: Final = Path(__file__).parent / "planted"


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(given)
    missing = lacking()
    kinds = {kind.title: kind for kind in Kind}
    chosen = tuple(kinds[name.strip()] for name in options.kinds.split(",")) if options.kinds else ()
    if chosen and all(kind.needs in missing for kind in chosen):
        print("none of these can be done here: " + "; ".join(f"{k.title}: {missing[k.needs]}" for k in chosen))
        return 2
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
        given += ["--seed", str(options.seed)]
    if options.print_plan:
        for event in _plan(options, options.seed, options.events or 40, missing, chosen):
            print(event)
        return 0
    if not options.no_sandbox and not sandbox.is_inside() and not sandbox.unavailable():
        return sandbox.enter("tests.nemesis", given)
    return run(options, missing if sandbox.is_inside() else _without_sandbox(missing), chosen)


def _without_sandbox(missing: Mapping[Needs, str]) -> dict[Needs, str]:
    reason = sandbox.unavailable() or "left out by --no-sandbox"
    return {Needs.NETWORK: reason, Needs.DISK: reason, **missing}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description="Real processes under faults.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults in all (10)")
    parser.add_argument("--seed", type=int, help="of the first round's plan; the next rounds count on from it")
    parser.add_argument(
        "--nodes",
        type=int,
        default=4,
        choices=range(3, 8),
        help="3 to 7 (4); the first three vote",
    )
    parser.add_argument(
        "--kinds", default="", help="these faults alone, with commas: " + ", ".join(k.title for k in Kind)
    )
    parser.add_argument("--events", type=int, default=0, help="so many events a round; 0: as many as there is time for")
    parser.add_argument("--longest", type=float, default=LASTS_S[-1], help="seconds that a fault lasts at most (25)")
    parser.add_argument("--slack", type=float, default=2.0, help="bounds of time are multiplied by it (2)")
    parser.add_argument("--port", type=int, default=0, help="the first port, where nodes have no network of their own")
    parser.add_argument("--plant", default="", help="a defect to put into the nodes, see tests/nemesis/planted")
    parser.add_argument("--report", default="build/nemesis/report.html", help="the page to write")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' logs though nothing was found")
    parser.add_argument("--no-sandbox", action="store_true", help="no namespaces: without network and disk faults")
    parser.add_argument("--print-plan", action="store_true", help="print the plan and end")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, missing: Mapping[Needs, str], chosen: tuple[Kind, ...]) -> int:
    command = "python -m tests.nemesis " + " ".join(sys.argv[1:])
    print(f"{command}\nseed {options.seed}; the plan is a function of it, the timing of real processes is not")
    for needs, reason in missing.items():
        print(f"skipped for want of {needs.value} ({reason}): {', '.join(k.title for k in Kind if k.needs is needs)}")
    base = Path(tempfile.mkdtemp(prefix="streamlog-nemesis-"))
    target = Path(options.report).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in its background without one
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    status = 0
    try:
        tools = Tools(base, missing)
        left_s, seed = options.minutes * 60, options.seed
        while left_s > 0:
            begin = time.monotonic()
            results.append(_one_round(options, missing, chosen, tools, seed, min(left_s, ROUND_S), base))
            gc.collect()  # the history of a round is large
            left_s -= ROUND_S if options.events == 0 else max(ROUND_S, time.monotonic() - begin)
            seed += 1
    except KeyboardInterrupt:
        print("interrupted: what was made is removed")
        status = INTERRUPTED
    finally:
        logs = target.parent / "logs"
        if any(result.findings for result in results) or options.keep:
            _keep_logs(base, logs)
        shutil.rmtree(base, ignore_errors=True)
    shown = report.Run(command=command, lacking=missing, results=results)
    target.write_text(report.page(shown))
    for line in report.summary(shown):
        print(line)
    print(f"report: {target}")
    return status or (1 if shown.findings else 0)


def _one_round(
    options: argparse.Namespace,
    missing: Mapping[Needs, str],
    chosen: tuple[Kind, ...],
    tools: Tools,
    seed: int,
    seconds: float,
    base: Path,
) -> Result:
    print(f"\nround of seed {seed}, {seconds:.0f} s of faults", flush=True)
    findings = Findings(lambda what: print(what, flush=True))
    plan = _plan(options, seed, options.events or max(10, round(seconds)), missing, chosen)
    settings = Settings(
        seed=seed,
        seconds=seconds,
        nodes=options.nodes,
        port=options.port,
        slack=options.slack,
        plan=plan,
        lacking=missing,
        environment=_planting(options.plant),
    )
    return asyncio.run(Round(settings, base / f"round-{seed}", tools, findings).run())


def _plan(
    options: argparse.Namespace, seed: int, events: int, missing: Mapping[Needs, str], chosen: tuple[Kind, ...]
) -> list[Event]:
    return draw_plan(seed, nodes=options.nodes, events=events, lacking=missing, kinds=chosen, longest_s=options.longest)


def _planting(defect: str) -> dict[str, str]:
    if not defect:
        return {}
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(PLANTED), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "STREAMLOG_NEMESIS_PLANT": defect}


def _keep_logs(base: Path, logs: Path) -> None:
    shutil.rmtree(logs, ignore_errors=True)
    for log in base.glob("round-*/node-*/streamlogd.log"):
        kept = logs / log.parent.parent.name / f"{log.parent.name}.log"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept)
    print(f"the nodes' logs: {logs}")


if __name__ == "__main__":
    sys.exit(main())
