"""The reason of a failed query in one sentence, extracted from Spark's long messages. Pure."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"streamlog\.spark\.failures\.\w+: (.+?)(?=\n|$)")
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_UNKNOWN: Final = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: streamlog\b")
_CONDITION: Final = re.compile(r"\[[A-Z_.]{4,}\][^\n]*")
_CALLING: Final = re.compile(r"^An error occurred while calling \S+\n: ")
_TRACEBACK: Final = "Traceback (most recent call last)"
_LENGTH_MAX: Final = 600
_PACKAGES: Final = ("streamlog", "pyspark_streamlog", "pyarrow", "grpc", "numpy", "google")


def explanation(text: str, root: str = "") -> str:
    """`text`: of the exception; `root`: of its root cause."""
    ours = _OURS.search(text)
    if ours:
        return ours[1].strip()
    missing = _MISSING.search(text)
    if missing and missing[1].split(".")[0] in _PACKAGES:
        return (
            f"Python on an executor has no package {missing[1]}: pip install 'streamlog[spark]' into the Python of"
            " PYSPARK_PYTHON there"
        )
    if _UNKNOWN.search(text):
        return (
            "Spark does not find data source streamlog: pip install 'streamlog[spark]' into the Python of"
            " PYSPARK_DRIVER_PYTHON, or of PYSPARK_PYTHON where that is not set"
        )
    if "Python worker exited unexpectedly" in text or "Cannot run program" in text:
        return (
            "Python on an executor exits immediately: check that 'streamlog[spark]' is installed in the Python of"
            " PYSPARK_PYTHON"
        )
    if "Multiple streaming queries are concurrently using" in text or "Concurrent update to the" in text:
        return "another run of this pipeline uses the same checkpoint: stop that one first"
    if "stopped SparkContext" in text:
        return "Spark has stopped: check that the master in spark.master is reachable, and its log for this application"
    condition = _CONDITION.search(text)
    said = condition[0] if condition else _first_line(_CALLING.sub("", text))
    cause = _first_line(root)
    if cause and cause not in said and _TRACEBACK not in cause:
        said = f"{said}: {cause}"
    return said[:_LENGTH_MAX]


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0]
