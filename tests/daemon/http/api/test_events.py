"""Methods with many responses over HTTP: fetches, server-sent events, and how reading resumes."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.api.convert.records.subscribe import subscribe_query
from streamlog.api.pb import records_pb2 as pb
from streamlog.daemon.http import connection
from streamlog.daemon.http.api import streams
from streamlog.daemon.http.api.resume import ReadProgress, parse_id
from streamlog.errors import InvalidRequestError, RequestTooLargeError
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.daemon.http.api.served_api import (
    SETTINGS,
    TIMEOUT_S,
    Client,
    Deadline,
    Event,
    EventReader,
    served,
    subscribe_path,
    text,
    values,
)

EARLIEST = {"bound": "OFFSET_BOUND_EARLIEST"}
LATEST = {"bound": "OFFSET_BOUND_LATEST"}
BROWSER = {"accept": "text/event-stream"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("nodes"), nodes=1) as running:
        yield running


@pytest.fixture(scope="module")
def api(cluster: InProcessCluster) -> Iterator[Client]:
    with served(cluster) as client:
        yield client


@pytest.fixture
def topic(cluster: InProcessCluster, request: pytest.FixtureRequest) -> str:
    """Of its own for each test; two partitions."""
    name = request.node.name.replace("[", "-").replace("]", "")[:200]
    cluster.create_topic(name, partitions=2)
    return str(name)


def publish(api: Client, topic: str, partition: int, *given: str) -> None:
    records = [{"value": text(value), "partition": partition} for value in given]
    api.call("Records/Publish", {"topic": topic, "records": records})


def reading(topic: str, start: Any = EARLIEST, end: Any = None, **more: Any) -> dict[str, Any]:
    return {"subscriptions": [{"topic": topic, "start": start, **({"end": end} if end else {})}], **more}


def until(events: Iterable[Event], condition: Callable[[Event], bool]) -> list[Event]:
    """Up to the first one that fulfils it."""
    found = []
    for event in events:
        found.append(event)
        if condition(event):
            return found
    raise AssertionError(f"the response ended: {found}")


def is_end(event: Event) -> bool:
    return event.name == "end"


class TestFetch:
    """The first response alone."""

    def test_records_from_an_offset(self, api: Client, topic: str) -> None:
        publish(api, topic, 1, "a", "b", "c")
        request = {"subscriptions": [{"topic": topic, "partitions": [1], "start": {"offset": "1"}}]}
        (got,) = api.call("Records/Subscribe", request)["partitions"]
        assert [(one["offset"], one["value"]) for one in got["records"]] == [("1", text("b")), ("2", text("c"))]
        assert (got["position"], got["highWatermark"], got["lag"]) == ("3", "3", "0")

    def test_at_the_end_it_waits_and_has_the_position(self, api: Client, topic: str) -> None:
        request = {"subscriptions": [{"topic": topic, "partitions": [0]}], "heartbeatIntervalMs": 100}
        (got,) = api.call("Records/Subscribe", request)["partitions"]
        assert (got["records"], got["position"]) == ([], "0")

    def test_a_topic_that_does_not_exist(self, api: Client) -> None:
        refused = api.post("Records/Subscribe", reading("nix"))
        assert (refused.status, refused.reason) == (404, "UNKNOWN_TOPIC_OR_PARTITION")

    def test_the_metadata(self, api: Client, topic: str) -> None:
        found = api.call("Batches/WatchMetadata", {"topics": [topic]})
        assert [one["topic"] for one in found["topics"]] == [topic]

    def test_it_takes_no_longer_than_its_deadline(self, api: Client, topic: str) -> None:
        late = api.post("Records/Subscribe", reading(topic, heartbeatIntervalMs=600_000), connect_timeout_ms="50")
        assert (late.status, late.reason) == (504, "REQUEST_TIMED_OUT")


class TestEvents:
    def test_records_to_the_end(self, api: Client, topic: str) -> None:
        publish(api, topic, 0, "a", "b")
        with EventReader(api, subscribe_path(reading(topic, end=LATEST)), BROWSER) as reader:
            assert (reader.response.status, reader.response.getheader("content-type")) == (200, "text/event-stream")
            events = list(reader)
        assert list(values(events)) == [(0, "0", "a"), (0, "1", "b")]
        assert events[-1] == Event("end", "end", {})

    def test_a_browser_that_reconnects_after_the_end_is_stopped(self, api: Client, topic: str) -> None:
        with EventReader(api, subscribe_path(reading(topic)), {**BROWSER, "last-event-id": "end"}) as reader:
            assert reader.response.status == 204

    def test_new_records_arrive_and_heartbeats_have_ids(self, api: Client, topic: str) -> None:
        with EventReader(api, subscribe_path(reading(topic, LATEST, heartbeatIntervalMs=100)), BROWSER) as reader:
            events = iter(reader)
            until(events, lambda event: event.id.count("=") == 2)
            assert parse_id(reader.last_event_id) == {topic: {0: 0, 1: 0}}
            publish(api, topic, 1, "x")
            assert list(values(until(events, lambda event: event.data is not None))) == [(1, "0", "x")]
            assert parse_id(reader.last_event_id) == {topic: {0: 0, 1: 1}}

    def test_reading_resumes_after_the_last_event(self, api: Client, topic: str) -> None:
        publish(api, topic, 0, "a", "b")
        path = subscribe_path(reading(topic, heartbeatIntervalMs=100))
        with EventReader(api, path, BROWSER) as reader:
            until(iter(reader), lambda event: event.id.count("=") == 2)
        publish(api, topic, 0, "c")
        publish(api, topic, 1, "d")
        with EventReader(api, path, {**BROWSER, "last-event-id": reader.last_event_id}) as resumed:
            read: list[tuple[int, str, str]] = []
            for record in values(resumed):
                read.append(record)
                if len(read) == 2:
                    break
        assert sorted(read) == [(0, "2", "c"), (1, "0", "d")]

    def test_a_resumed_reader_gets_partitions_that_are_added(self, api: Client, topic: str) -> None:
        path = subscribe_path(reading(topic))
        with EventReader(api, path, {**BROWSER, "last-event-id": f"{topic}:0=0,1=0"}) as reader:
            events = iter(reader)
            until(events, lambda event: event.id != "")
            api.call("Admin/CreatePartitions", {"topics": [{"topic": topic, "partitionCount": 3}]})
            added = {"topic": topic, "records": [{"value": text("x"), "partition": 2}]}
            deadline = Deadline("a write to the added partition")
            while (response := api.post("Records/Publish", added)).status != 200:
                deadline.check(response)  # the node knows the partition in a moment
            assert next(values(events)) == (2, "0", "x")

    def test_posted_requests(self, api: Client, topic: str) -> None:
        publish(api, topic, 0, "a")
        body = b'{"subscriptions":[{"topic":"%b","start":{"offset":"0"},"end":{"offset":"1"},"partitions":[0]}]}'
        headers = {"accept": "text/event-stream", "content-type": "application/json"}
        with EventReader(api, "/streamlog.v1.Records/Subscribe", headers, body % topic.encode()) as reader:
            assert list(values(reader)) == [(0, "0", "a")]

    def test_a_stream_of_metadata_has_no_ids(self, api: Client, topic: str) -> None:
        with EventReader(api, "/streamlog.v1.Batches/WatchMetadata?message={}", BROWSER) as reader:
            (event,) = until(iter(reader), lambda event: event.data is not None)[-1:]
        assert event.id == ""
        assert topic in [one["topic"] for one in event.data["topics"]]

    def test_while_nothing_comes_there_are_comments(
        self, api: Client, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streams, "KEEPALIVE_S", 0.01)
        with EventReader(api, subscribe_path(reading(topic, heartbeatIntervalMs=600_000)), BROWSER) as reader:
            comments = list(itertools.islice(reader, 3))
        assert [(one.name, one.id) for one in comments] == [("", "")] * 3

    def test_a_client_that_does_not_read_is_cut_off(
        self, cluster: InProcessCluster, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "SEND_S", 0.2)
        path = subscribe_path(reading(topic))
        with (
            served(cluster, settings=replace(SETTINGS, streams_max=1)) as api,
            socket.socket() as client,
        ):
            for _ in range(12):
                publish(api, topic, 0, "x" * (900 << 10))
            client.settimeout(TIMEOUT_S)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", api.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 200"
            deadline = Deadline("the end of the stream that is cut off, and its place")
            while (response := api.send("GET", subscribe_path(reading("nix")), {})).status == 429:
                deadline.check(response)
            received = 0
            while part := client.recv(1 << 20):
                received += len(part)
                deadline.check(f"{received} bytes")
        assert received < 12 * 900 << 10


class TestRefused:
    @pytest.mark.parametrize(
        ("path", "headers", "said"),
        [
            ("", {}, "needs the request as JSON in its parameter message"),
            ("?message={}&x=1", {}, "needs the request as JSON in its parameter message"),
            ("?message={}&message={}", {}, "needs the request as JSON in its parameter message"),
            ("?message={", {}, "it is not JSON"),
            ("?message={}", {}, "subscriptions"),
            ("?message={}", {"last-event-id": "x"}, "Last-Event-ID"),
            (
                '?message={"subscriptions":[{"topic":"t"}],"responseBytesMax":-1}',
                {},
                "response_bytes_max is -1",
            ),
        ],
    )
    def test_before_the_first_event_as_a_status(
        self, api: Client, path: str, headers: dict[str, str], said: str
    ) -> None:
        refused = api.send("GET", f"/streamlog.v1.Records/Subscribe{path}", {**BROWSER, **headers})
        assert (refused.status, refused.json["code"]) == (400, "invalid_argument")
        assert said in refused.json["message"]

    @pytest.mark.parametrize("accept", ["", "text/event-stream"])
    @pytest.mark.parametrize(
        ("body", "status", "reason"),
        [(b"\xff", 400, "INVALID_REQUEST"), (b"\x0a\x00" * (513 << 10), 429, "REQUEST_TOO_LARGE")],
        ids=["no message", "too large"],
    )
    def test_a_posted_message(self, api: Client, body: bytes, status: int, reason: str, accept: str) -> None:
        refused = api.post("Records/Subscribe", body, content_type="application/proto", accept=accept)
        assert (refused.status, refused.reason) == (status, reason)

    def test_a_browser_reconnects_where_that_may_help(self, api: Client) -> None:
        """Its EventSource does so after a response of status 200 only."""
        with EventReader(api, subscribe_path(reading("nix")), BROWSER) as reader:
            (event,) = list(reader)[-1:]
        assert (reader.response.status, event.name, event.data["error"]["code"]) == (200, "end", "not_found")
        assert api.send("GET", subscribe_path(reading("nix")), {}).status == 404

    def test_another_http_method(self, api: Client) -> None:
        refused = api.send("PUT", "/streamlog.v1.Records/Subscribe", {})
        assert (refused.status, refused.headers["allow"]) == (405, "POST, GET, OPTIONS")

    def test_more_streams_than_the_limit(self, cluster: InProcessCluster, topic: str) -> None:
        path = subscribe_path(reading(topic))
        with (
            served(cluster, settings=replace(SETTINGS, streams_max=1)) as api,
            EventReader(api, path, BROWSER),
        ):
            refused = api.send("GET", path, BROWSER)
            assert (refused.status, refused.reason) == (429, "THROTTLED")
            assert "http.api.max.streams" in refused.json["message"]
            assert api.post("Cluster/Describe", {}).status == 200


def test_events_through_a_fail_over_and_the_stop_of_the_node(tmp_path: Path) -> None:
    """Of another node first, then of the one that serves the events: every record once, in order."""
    with InProcessCluster(tmp_path, nodes=3) as cluster, served(cluster, 1) as api, served(cluster, 3) as other:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        path = subscribe_path(reading("orders"))
        read: list[str] = []

        def read_one(events: Iterator[tuple[int, str, str]]) -> None:
            read.append(next(events)[2])

        with EventReader(api, path, BROWSER) as reader:
            events: list[Event] = []

            def noted() -> Iterator[Event]:
                for event in reader:
                    events.append(event)
                    yield event

            records = values(noted())
            publish_somewhere(other, "0")
            read_one(records)
            cluster.stop_node(2)
            publish_somewhere(other, "1")
            read_one(records)
            cluster.stop_node(1)
            read += [value for _, _, value in records]
        assert (events[-1].name, events[-1].data["error"]["code"]) == ("end", "unavailable")
        cluster.start_node(2)
        publish_somewhere(other, "2")
        with EventReader(other, path, {**BROWSER, "last-event-id": reader.last_event_id}) as resumed:
            read_one(values(resumed))
        assert read == ["0", "1", "2"]


def publish_somewhere(api: Client, value: str) -> None:
    """Once, also while a leader is elected: a token makes it safe to send it again."""
    request = {"topic": "orders", "records": [{"value": text(value)}]}
    deadline = Deadline(f"the write of {value}")
    while (token := api.post("Batches/InitProducerId", {})).status != 200:
        deadline.check(token)
    request["producerToken"] = token.json["producerToken"]
    while (response := api.post("Records/Publish", request)).status != 200:
        deadline.check(response)


class TestIds:
    def test_what_is_resumed(self) -> None:
        request = pb.SubscribeRequest()
        request.subscriptions.add(topic="a", end=pb.EndPosition(offset=9)).start.offset = 1
        request.subscriptions.add(topic="b", partitions=[0, 1]).start.offset = 2
        request.subscriptions.add(topic="c").start.offset = 3
        ReadProgress("a:0=5,7=6;b:1=8").resume(request)
        found = [(one.topic, list(one.partitions), one.start.offset, one.end.offset) for one in request.subscriptions]
        assert found == [
            ("b", [1], 8, 0),
            ("b", [0], 2, 0),
            ("a", [0], 5, 9),
            ("a", [7], 6, 9),
            ("a", [], 1, 9),
            ("c", [], 3, 0),
        ]

    def test_a_topic_of_which_some_partitions_are_named_is_resumed(self) -> None:
        request = pb.SubscribeRequest()
        request.subscriptions.add(topic="a").start.offset = 1
        request.subscriptions.add(topic="a", partitions=[0]).start.offset = 2
        request.subscriptions.add(topic="a", partitions=[3]).start.offset = 3
        ReadProgress("a:0=5,1=6").resume(request)
        found = [(list(one.partitions), one.start.offset) for one in request.subscriptions]
        assert found == [([0], 5), ([3], 3), ([1], 6), ([], 1)]
        subscribe_query(request)  # which refuses a partition that it has twice

    def test_positions_are_used_once_however_often_the_topic_is_named(self) -> None:
        known = ",".join(f"{index}=0" for index in range(1_000))
        for partitions in ([], [0]):
            request = pb.SubscribeRequest()
            for _ in range(100):
                request.subscriptions.add(topic="a", partitions=partitions)
            ReadProgress(f"a:{known}").resume(request)
            assert len(request.subscriptions) <= 1_100
            with pytest.raises(InvalidRequestError, match="'a' twice"):
                subscribe_query(request)

    def test_what_is_copied_to_each_partition_is_small(self) -> None:
        request = pb.SubscribeRequest()
        unknown = bytes([15 << 3 | 2, 100]) + b"x" * 100
        request.subscriptions.add(topic="a").end.MergeFromString(unknown)
        ReadProgress("a:0=5,1=6").resume(request)
        assert len(request.SerializeToString()) < 100

    def test_more_than_a_call_may_read_is_refused_first(self) -> None:
        for each, count in ((10_001, 1), (0, 10_001)):
            request = pb.SubscribeRequest()
            for _ in range(count):
                request.subscriptions.add(topic="a", partitions=range(each))
            with pytest.raises(InvalidRequestError, match="more than 10000 partitions"):
                ReadProgress("b:0=1").resume(request)

    def test_an_id_names_every_partition_so_far(self) -> None:
        progress = ReadProgress("")
        response = pb.SubscribeResponse()
        response.partitions.add(topic="a", partition=1, position=4)
        assert progress.note(response) == "a:1=4"
        response.partitions[0].position = 5
        response.partitions.add(topic="b", partition=0, position=1)
        response.partitions.add(topic="b", partition=2).error.code = "X"  # its position may be unknown
        assert progress.note(response) == "a:1=5;b:0=1"
        assert parse_id("a:1=5;b:0=1") == {"a": {1: 5}, "b": {0: 1}}

    @pytest.mark.parametrize(
        "given",
        ["a", "a:", "a:x=1", "a:1=1;a:2=2", "a:1=-1", "a:4294967296=1", "a:1=9999999999999999999", "/:1=1", "a:1=1;"],
    )
    def test_what_is_no_id(self, given: str) -> None:
        with pytest.raises(InvalidRequestError, match="Last-Event-ID"):
            ReadProgress(given)

    def test_an_id_that_would_be_too_long_for_a_header(self) -> None:
        response = pb.SubscribeResponse()
        for index in range(2_000):
            response.partitions.add(topic="orders", partition=index, position=1)
        with pytest.raises(RequestTooLargeError, match="subscribe to fewer partitions"):
            ReadProgress("").note(response)
