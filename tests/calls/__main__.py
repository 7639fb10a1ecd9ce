"""Calls a record beside the committed ones (`make bench-count`).

python -m tests.calls [--write]
python -m tests.calls --functions "send one record" leader      which functions were called most
"""

from __future__ import annotations

import argparse

from tests.calls.committed import changes, committed, write
from tests.calls.paths import count_all


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.calls", description="Python calls a record.")
    parser.add_argument("--write", action="store_true", help="make these the committed figures")
    parser.add_argument("--functions", nargs=2, metavar=("PATH", "ROLE"), help="list the functions of one figure")
    parser.add_argument("--top", type=int, default=60, help="how many functions")
    options = parser.parse_args()
    (found, functions), before = count_all(), committed()
    if options.functions:
        path, role = options.functions
        for name, number in functions[path][role].most_common(options.top):
            print(f"{number:8}  {name}")
        return 0
    print(f"{'calls a record':24}{'role':12}{'committed':>12}{'now':>12}")
    for path, roles in found.items():
        for role, calls in roles.items():
            print(f"{path:24}{role:12}{before.get(path, {}).get(role, 0):>12}{calls:>12}")
    if options.write:
        write(found)
        return 0
    different = changes(before, found)
    print("\n".join(different) or "none has changed by more than 2 %")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
