"""Pipelines without Spark: settings, what is said of progress and of failures, the command line."""

from __future__ import annotations

import threading

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.pipelines.explain import explanation
from streamlog.spark.pipelines.running import PIPELINES, behind_of, progress_line, run_queries
from streamlog.spark.pipelines.settings import COMMON, PipelineSetting, PipelineSettings

TABLE = (*COMMON, PipelineSetting("topics", None, "Topics."), PipelineSetting("window", "1 minute", "How long."))
GIVEN = {"bootstrap.servers": "h:1", "checkpoint": "/state/", "topics": "a, b,"}


def test_settings() -> None:
    settings = PipelineSettings(TABLE, GIVEN | {"spark.master": "local[2]", "streamlog.fetch.max.bytes": "5000"})
    assert settings["window"] == "1 minute"
    assert settings.list("topics") == ["a", "b"]
    assert settings.spark == {"spark.master": "local[2]"}
    assert settings.clients == {"streamlog.bootstrap.servers": "h:1", "streamlog.fetch.max.bytes": "5000"}
    assert settings.checkpoint("q") == "/state/q"
    assert "maxOffsetsPerTrigger" not in settings.source()
    limited = PipelineSettings(TABLE, GIVEN | {"max.offsets.per.trigger": "7"})
    assert limited.source(subscribe="a")["maxOffsetsPerTrigger"] == "7"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topcs": "a"}, "option topcs: is not known; did you mean topics?"),
        ({"topics": " "}, "option topics: must be given, by --conf topics=...: Topics."),
    ],
)
def test_settings_that_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        PipelineSettings(TABLE, GIVEN | given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[STREAM_FAILED] Query x:\nstreamlog.spark.failures.OptionError: option topic: is missing\n SQLSTATE",
            "option topic: is missing",
        ),
        (
            "File ...\nModuleNotFoundError: No module named 'streamlog'\n",
            "Python on an executor has no package streamlog",
        ),
        (
            "An error occurred while calling o47.load.\n: org.apache.spark.SparkClassNotFoundException:"
            " [DATA_SOURCE_NOT_FOUND] Failed to find the data source: streamlog. Make sure ...",
            "Spark does not find data source streamlog: pip install",
        ),
        ("Job aborted: Python worker exited unexpectedly (crashed)", "Python on an executor exits immediately"),
        (
            "X\n[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE\n at java",
            "[PATH_NOT_FOUND] Path does not exist",
        ),
        (
            "An error occurred while calling o4.load.\n: java.lang.IllegalStateException: Cannot call methods on a"
            " stopped SparkContext.\nThis stopped SparkContext was created at:",
            "Spark has stopped: check that the master in",
        ),
        ("something else\nat line 2", "something else"),
    ],
)
def test_why_a_query_failed_is_one_sentence(text: str, sentence: str) -> None:
    found = explanation(text)
    assert found.startswith(sentence)
    assert "\n" not in found


def test_why_a_query_failed_names_what_caused_it() -> None:
    failed = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030"
    assert explanation(failed, "java.io.IOException: no room\n\tat Java") == f"{failed}: java.io.IOException: no room"
    assert explanation(failed, failed) == failed
    assert explanation(failed, "PythonException: Traceback (most recent call last):\n...") == failed
    called = "An error occurred while calling o63.start.\n: java.io.IOException: no room\n\tat Java"
    assert explanation(called) == "java.io.IOException: no room"


def test_a_line_about_progress() -> None:
    source = {"latestOffset": '{"a": {"0": 50, "1": 9}}', "endOffset": '{"@begin": {}, "a": {"0": 20, "1": 9}}'}
    progress = {
        "batchId": 3,
        "numInputRows": 1200,
        "durationMs": {"triggerExecution": 2000},
        "sources": [source],
        "stateOperators": [{"numRowsDroppedByWatermark": 2}],
    }
    assert progress_line("q", progress) == "q: batch 3, 1,200 rows in 2,000 ms, 30 behind, 2 too late"
    assert behind_of({"latestOffset": None, "endOffset": '{"logOffset": 3}'}) == 0


def test_the_command_lists_them() -> None:
    result = CliRunner().invoke(main, ["pipeline", "list", "--output", "json"])
    assert result.exit_code == 0, result.output
    assert all(f'"name": "{name}"' in result.output for name in PIPELINES)


def test_the_command_refuses_what_it_does_not_know() -> None:
    result = CliRunner().invoke(main, ["pipeline", "run", "archive", "--conf", "path"])
    assert result.exit_code == 2
    assert "must be NAME=VALUE" in result.output
    result = CliRunner().invoke(main, ["pipeline", "run", "no-such"])
    assert result.exit_code == 2


@pytest.mark.spark
def test_an_unreachable_cluster_is_one_sentence(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")
    confs = ["--conf", "topics=a", "--conf", f"path={tmp_path}/a", "--conf", f"checkpoint={tmp_path}/c"]
    result = CliRunner().invoke(main, ["pipeline", "run", "archive", "--bootstrap-server", "127.0.0.1:1", *confs])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "no node answers at 127.0.0.1:1" in result.output


class FakeQuery:
    """One that ends at once, or has failed."""

    name, isActive = "q", False

    def __init__(self, error: str | None, *progress: dict[str, object]) -> None:
        self._error = error
        self.recentProgress = progress

    def exception(self) -> str | None:
        return self._error

    def stop(self) -> None:
        pass


def test_each_micro_batch_with_rows_is_reported_once() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")
    counts = [(0, 5), (1, 0), (1, 0), (1, 7), (2, 0)]  # (number, rows), as Spark reports a query that is sometimes idle
    progress = [
        {"batchId": number, "numInputRows": rows, "durationMs": {}, "sources": [], "stateOperators": []}
        for number, rows in counts
    ]
    said: list[str] = []
    run_queries(lambda: [FakeQuery(None, *progress)], threading.Event(), said.append)  # type: ignore[list-item]
    assert said == ["q: batch 0, 5 rows in 0 ms", "q: batch 1, 7 rows in 0 ms"]


@pytest.mark.parametrize(("failures", "starts"), [(0, 1), (3, 4)])
def test_a_query_that_spark_did_not_wait_for_is_started_again(failures: int, starts: int) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")
    errors = ["Job: Python worker failed to connect back."] * failures
    begun: list[int] = []
    said: list[str] = []

    def start() -> list[FakeQuery]:
        begun.append(len(begun))
        return [FakeQuery(errors.pop() if errors else None)]

    run_queries(start, threading.Event(), said.append)  # type: ignore[arg-type]
    assert len(begun) == starts
    assert len(said) == failures


@pytest.mark.parametrize(("error", "starts"), [("Python worker failed to connect back", 4), ("no such topic", 1)])
def test_a_query_that_fails_permanently_is_reported(error: str, starts: int) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")
    begun: list[int] = []

    def start() -> list[FakeQuery]:
        begun.append(len(begun))
        return [FakeQuery(error)]

    with pytest.raises(StreamlogSparkError, match=error):
        run_queries(start, threading.Event(), lambda _: None)  # type: ignore[arg-type]
    assert len(begun) == starts
