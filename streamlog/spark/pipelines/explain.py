"""Why a query has failed, in one sentence: out of what Spark says, which is long. Pure."""

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
    """Of the text of an exception. `root`: that of what caused it all."""
    ours = _OURS.search(text)
    if ours:
        return ours[1].strip()
    missing = _MISSING.search(text)
    if missing and missing[1].split(".")[0] in _PACKAGES:
        return (
            f"Python on an executor has no package {missing[1]}: pip install 'streamlog[spark]' there too,"
            " into the Python that PYSPARK_PYTHON names"
        )
    if _UNKNOWN.search(text):
        return (
            "Spark finds no data source streamlog: pip install 'streamlog[spark]' into the Python that"
            " PYSPARK_DRIVER_PYTHON names, or else PYSPARK_PYTHON"
        )
    if "Python worker exited unexpectedly" in text or "Cannot run program" in text:
        return (
            "Python on an executor ends at once: see that 'streamlog[spark]' is installed into the Python that"
            " PYSPARK_PYTHON names"
        )
    if "Multiple streaming queries are concurrently using" in text or "Concurrent update to the" in text:
        return "another run of this pipeline uses the same checkpoint: stop it first"
    if "stopped SparkContext" in text:
        return (
            "Spark has stopped: see that the master which spark.master names answers, and what it says of this"
            " application"
        )
    condition = _CONDITION.search(text)
    said = condition[0] if condition else _first_line(_CALLING.sub("", text))
    cause = _first_line(root)
    if cause and cause not in said and _TRACEBACK not in cause:
        said = f"{said}: {cause}"
    return said[:_LENGTH_MAX]


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0]
