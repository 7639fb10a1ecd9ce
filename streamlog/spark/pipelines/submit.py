"""A pipeline for spark-submit: `spark-submit .../streamlog/spark/pipelines/submit.py NAME --conf key=value ...`"""

from __future__ import annotations

import argparse
import sys

from streamlog.spark.failures import StreamlogSparkError
from streamlog.spark.pipelines.running import PIPELINES, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="submit.py", description="Run a pipeline of streamlog's.")
    parser.add_argument("name", choices=list(PIPELINES))
    parser.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help="A setting; can be repeated.")
    arguments = parser.parse_args()
    pairs = [text.partition("=") for text in arguments.conf]
    for text, equals, _ in pairs:
        if not equals:
            parser.error(f"--conf {text}: must be KEY=VALUE")
    try:
        run(
            arguments.name,
            {key: value for key, _, value in pairs},
            lambda line: print(line, file=sys.stderr, flush=True),
        )
    except StreamlogSparkError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
