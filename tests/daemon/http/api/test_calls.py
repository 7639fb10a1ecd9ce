"""Calls over HTTP: what they return, what is refused and how, and that nothing else is reachable."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.api.pb import records_pb2
from streamlog.daemon.http.api import body
from streamlog.daemon.http.api.methods import ONLY_GRPC, SERVED_METHODS
from streamlog.node.served_methods import CLIENT_PREFIX, streaming_methods, unary_methods
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.daemon.http.api.served_api import SETTINGS, TIMEOUT_S, Client, node_of, read, served, text


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("nodes"), nodes=2) as running:
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture(scope="module")
def api(cluster: InProcessCluster) -> Iterator[Client]:
    with served(cluster) as client:
        yield client


def publish(*values: str) -> dict[str, Any]:
    return {"topic": "orders", "records": [{"value": text(value)} for value in values]}


class TestServed:
    def test_records_are_written(self, api: Client) -> None:
        results = api.call("Records/Publish", publish("tea", "coffee"))["results"]
        assert [int(one["offset"]) >= 0 for one in results] == [True, True]

    def test_a_field_may_have_the_name_of_the_proto_file(self, api: Client) -> None:
        record = {"value": text("tea"), "timestamp_ms": "7"}
        assert api.call("Records/Publish", {"topic": "orders", "records": [record]})["results"][0]["timestampMs"] == "7"

    def test_topics(self, api: Client) -> None:
        created = api.call("Admin/CreateTopics", {"topics": [{"name": "t", "partitions": 3, "replicationFactor": 2}]})
        assert created["results"][0]["partitionCount"] == 3
        assert "t" in [one["name"] for one in api.call("Admin/ListTopics", {})["topics"]]
        assert len(api.call("Admin/DescribeTopics", {"topics": ["t"]})["topics"][0]["partitions"]) == 3
        api.call("Admin/DeleteTopics", {"topics": ["t"]})
        again = api.call("Admin/DeleteTopics", {"topics": ["t"]})
        assert again["results"][0]["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"

    @pytest.mark.parametrize("node_id", [1, 2])
    def test_any_node_commits_for_a_group_and_knows_its_offsets(self, cluster: InProcessCluster, node_id: int) -> None:
        """Whichever coordinates it: a client over HTTP reaches one node."""
        with served(cluster, node_id) as api:
            for number in range(4):
                group = f"group-{node_id}-{number}"
                commit = {"group": group, "offsets": [{"topic": "orders", "partition": 1, "offset": "5"}]}
                assert [one for one in api.call("Groups/CommitOffsets", commit)["results"] if one.get("error")] == []
                found = api.call("Groups/FetchOffsets", {"group": group})["offsets"]
                assert [(one["topic"], one["partition"], one["offset"]) for one in found] == [("orders", 1, "5")]
            assert group in [one["group"] for one in api.call("Admin/ListGroups", {})["groups"]]

    def test_protobuf_instead_of_json(self, api: Client) -> None:
        request = records_pb2.PublishRequest(topic="orders")
        request.records.add(value=b"tea")
        response = api.post("Records/Publish", request.SerializeToString(), content_type="application/proto")
        assert (response.status, response.headers["content-type"]) == (200, "application/proto")
        assert records_pb2.PublishResponse.FromString(response.body).results[0].timestamp_ms > 0

    def test_several_calls_on_one_connection(self, api: Client) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=TIMEOUT_S)
        for request in (publish("a"), {"nix": 1}, publish("b")):
            headers = {"content-type": "application/json"}
            connection.request("POST", "/streamlog.v1.Records/Publish", json.dumps(request), headers)
            assert read(connection).status == (400 if "nix" in request else 200)
        connection.close()

    def test_metrics_count_the_calls(self, cluster: InProcessCluster, api: Client) -> None:
        def describes() -> float:
            families = {family.name: family for family in node_of(cluster, 1).metrics.calls.families()}
            counted = dict(families["streamlog_rpc_requests_total"].samples)
            value = counted[("streamlog.v1.Cluster/Describe",)]
            assert isinstance(value, int)
            return value

        before = describes()
        api.call("Cluster/Describe", {})
        assert describes() == before + 1


class TestWhatIsReachable:
    def test_every_public_method_is_served_or_says_why_not(self, api: Client) -> None:
        public = {name for name in (*unary_methods(), *streaming_methods()) if name.startswith(CLIENT_PREFIX)}
        assert SERVED_METHODS.keys() | ONLY_GRPC == public
        for path in ONLY_GRPC:
            refused = api.send("POST", path, {"content-type": "application/json"}, b"{}")
            assert (refused.status, refused.json["code"]) == (501, "unimplemented")
            assert "needs gRPC" in refused.json["message"]

    def test_every_other_method_does_not_exist(self, api: Client) -> None:
        others = [name for name in (*unary_methods(), *streaming_methods()) if not name.startswith(CLIENT_PREFIX)]
        assert [name for name in others if "internal" in name]
        for path in (*others, "/streamlog.v1.Records", "/streamlog.v1.Records/Publish/", "/streamlog.v1.Nix/Nix"):
            refused = api.send("POST", path, {"content-type": "application/json"}, b"{}")
            assert (refused.status, refused.json["code"]) == (404, "unimplemented")

    def test_unary_methods_with_an_empty_request_return_or_refuse_it(self, api: Client) -> None:
        """None crashes: an unexpected error of a handler is UNKNOWN."""
        harmless = {path for path, one in SERVED_METHODS.items() if not one.is_stream}
        for path in sorted(harmless - {"/streamlog.v1.Admin/UpdateMetadataVersion"}):
            response = api.send("POST", path, {"content-type": "application/json"}, b"{}")
            assert response.status in (200, 400, 404, 503), (path, response)
            assert isinstance(response.json, dict)

    def test_metrics_and_health_are_there_too(self, api: Client) -> None:
        assert api.send("GET", "/readyz", {}).body == b"ready\n"


BAD_JSON: list[tuple[Any, str]] = [
    (b"", "it is not JSON"),
    (b"{", "it is not JSON"),
    (b"\xff", "it is not JSON"),
    (b"[]", "it is not an object"),
    (b'{"topic":"a","topic":"b"}', "'topic' stands twice"),
    (b"[" * 100_000, "nested too deeply"),
    ({"nix": 1}, 'no field named "nix"'),
    ({"topic": 5}, "topic field"),
    ({"topic": "\ud800"}, "topic field"),
    ({"records": {}}, "records field"),
    ({"records": [{"value": "a"}]}, "base64"),
    ({"records": [{"timestampMs": "9" * 5_000}]}, "records field"),
    ({"records": [{"timestampMs": 1e300}]}, "records field"),
    ({"records": [{"partition": 1 << 40}]}, "records field"),
    ({"options": {"acks": "NIX"}}, "NIX"),
    ({"records": [None]}, "records field"),
]


class TestRefused:
    @pytest.mark.parametrize(("request_", "said"), BAD_JSON, ids=[said for _, said in BAD_JSON])
    def test_bad_json(self, api: Client, request_: Any, said: str) -> None:
        refused = api.post("Records/Publish", request_)
        assert (refused.status, refused.json["code"], refused.reason) == (400, "invalid_argument", "INVALID_REQUEST")
        assert refused.json["message"].startswith("the request cannot be read as streamlog.v1.PublishRequest: ")
        assert said in refused.json["message"]
        assert "\n" not in refused.json["message"]

    def test_an_error_of_the_node_has_its_reason(self, api: Client) -> None:
        refused = api.post("Records/Publish", {"topic": "nix", "records": [{}]})
        assert (refused.status, refused.json["code"], refused.reason) == (
            404,
            "not_found",
            "UNKNOWN_TOPIC_OR_PARTITION",
        )

    def test_another_http_method(self, api: Client) -> None:
        for method in ("GET", "PUT", "DELETE", "HEAD"):
            refused = api.send(method, "/streamlog.v1.Records/Publish", {})
            assert (refused.status, refused.headers["allow"]) == (405, "POST, OPTIONS")
            assert refused.body == b"" if method == "HEAD" else refused.reason == "INVALID_REQUEST"

    @pytest.mark.parametrize(
        "given", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
    )
    def test_another_content_type(self, api: Client, given: str) -> None:
        """Also keeps pages of other sites out: a browser sends these without asking first."""
        refused = api.post("Records/Publish", publish("x"), content_type=given)
        assert (refused.status, "application/json" in refused.json["message"]) == (415, True)

    def test_compressed(self, api: Client) -> None:
        assert api.post("Records/Publish", publish("x"), content_encoding="gzip").status == 415

    def test_another_version_of_the_protocol(self, api: Client) -> None:
        assert api.post("Cluster/Describe", {}, connect_protocol_version="2").status == 400
        assert api.post("Cluster/Describe", {}, connect_protocol_version="1").status == 200

    def test_too_large(self, api: Client) -> None:
        refused = api.post("Records/Publish", b'{"topic":"' + b"x" * (5 << 20) + b'"}')
        assert (refused.status, refused.reason) == (413, "REQUEST_TOO_LARGE")
        assert "socket.request.max.bytes" in refused.json["message"]

    def test_too_large_and_its_length_is_not_said(self, api: Client) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=TIMEOUT_S)
        headers = {"content-type": "application/json"}
        parts = (b"x" * (1 << 20) for _ in range(6))
        connection.request("POST", "/streamlog.v1.Records/Publish", parts, headers, encode_chunked=True)
        assert read(connection).reason == "REQUEST_TOO_LARGE"
        connection.close()

    def test_too_many_elements(self, api: Client) -> None:
        refused = api.post("Records/Publish", b'{"records":[' + b"{}," * 200_000 + b"{}]}")
        assert (refused.status, refused.reason) == (413, "REQUEST_TOO_LARGE")

    def test_a_body_that_does_not_come(self, api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(body, "BODY_S", 0.05)
        monkeypatch.setattr(body, "SKIP_S", 0.05)
        with socket.create_connection(("127.0.0.1", api.port), timeout=TIMEOUT_S) as client:
            client.sendall(
                b"POST /streamlog.v1.Records/Publish HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n"
                b"content-type: application/json\r\n\r\n{"
            )
            received = b""
            while part := client.recv(65_536):  # until it is closed
                received += part
        assert received.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within" in received

    def test_a_deadline_that_has_passed(self, api: Client) -> None:
        late = api.post("Admin/ListTopics", {}, connect_timeout_ms="0")
        assert (late.status, late.json["code"], late.reason) == (504, "deadline_exceeded", "REQUEST_TIMED_OUT")
        assert api.post("Admin/ListTopics", {}, connect_timeout_ms="60000").status == 200
        assert api.post("Admin/ListTopics", {}, connect_timeout_ms="soon").status == 400

    def test_more_calls_than_the_limit(self, cluster: InProcessCluster) -> None:
        with served(cluster, settings=replace(SETTINGS, calls_max=1)) as api:
            with socket.create_connection(("127.0.0.1", api.port), timeout=TIMEOUT_S) as slow:
                slow.sendall(
                    b"POST /streamlog.v1.Cluster/Describe HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n"
                    b"content-type: application/json\r\nexpect: 100-continue\r\n\r\n"
                )
                assert slow.recv(65_536).startswith(b"HTTP/1.1 100 ")  # it has its place, and waits for its body
                refused = api.post("Cluster/Describe", {})
                assert (refused.status, refused.reason) == (429, "THROTTLED")
                assert "http.api.max.calls" in refused.json["message"]
                assert api.send("GET", "/readyz", {}).status == 200
                slow.sendall(b"{}")
                assert slow.recv(65_536).startswith(b"HTTP/1.1 200 ")
            assert api.post("Cluster/Describe", {}).status == 200


class TestBrowsers:
    def call(self, api: Client, **headers: str) -> int:
        return api.post("Cluster/Describe", {}, **headers).status

    def test_pages_of_other_origins_are_refused(self, api: Client) -> None:
        assert self.call(api, origin="https://app.example") == 403
        assert self.call(api, origin="null") == 403
        assert self.call(api, origin=f"http://127.0.0.1:{api.port}") == 200
        assert self.call(api, sec_fetch_site="cross-site") == 403
        assert self.call(api, sec_fetch_site="same-origin") == 200
        preflight = api.send("OPTIONS", "/streamlog.v1.Cluster/Describe", {"origin": "https://app.example"})
        assert (preflight.status, "access-control-allow-origin" in preflight.headers) == (403, False)

    def test_a_name_that_points_here_is_not_ours(self, api: Client) -> None:
        """DNS rebinding."""
        for host in ("evil.example", "evil.example:9644", "127.0.0.1.evil.example", "[::1"):
            assert self.call(api, host=host) == 403
        for host in ("localhost", "127.0.0.1:9644", "[::1]:9644", "10.0.0.1"):
            assert self.call(api, host=host) == 200

    def test_origins_that_are_allowed(self, cluster: InProcessCluster) -> None:
        with served(cluster, settings=replace(SETTINGS, origins=("https://app.example",))) as api:
            preflight = api.send("OPTIONS", "/streamlog.v1.Cluster/Describe", {"origin": "https://app.example"})
            assert preflight.status == 204
            assert preflight.headers["access-control-allow-origin"] == "https://app.example"
            assert "content-type" in preflight.headers["access-control-allow-headers"]
            allowed = api.post("Cluster/Describe", {}, origin="https://app.example")
            assert allowed.headers["access-control-allow-origin"] == "https://app.example"
            refused = api.post("Cluster/Nix", {}, origin="https://app.example")  # the page may read the error too
            assert (refused.status, refused.headers["access-control-allow-origin"]) == (404, "https://app.example")
            assert self.call(api, origin="https://other.example") == 403


def test_a_node_that_stops_refuses_and_does_not_hang(tmp_path: Path) -> None:
    with InProcessCluster(tmp_path, nodes=1) as cluster, served(cluster) as api:
        cluster.stop_node(1)
        refused = api.post("Records/Publish", publish("x"))
        assert (refused.status, refused.json["code"]) == (503, "unavailable")
