"""The configuration of Envoy in docs/clients.md: a page's grpc-web calls through it. Skipped by name without Envoy."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import httpx
import pytest
import pytest_asyncio
from google.protobuf.message import Message

from streamlog.api.pb import admin_pb2, common_pb2, records_pb2
from tests.e2e.processes import Processes

pytestmark = [
    pytest.mark.process,
    pytest.mark.clients,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "clients.md"
ORIGIN: Final = "https://app.example"
HEADER: Final = struct.Struct(">BI")
TRAILERS: Final = 0x80
"""Flag of the last frame."""


def recipe(servers: str) -> str:
    """What the document has, with these nodes, at a free port of loopback."""
    (text,) = re.findall(r"```yaml\n(static_resources:.*?)```", DOCUMENT.read_text(), re.DOTALL)
    changes = {"0.0.0.0, port_value: 8080": "127.0.0.1, port_value: 0"}
    for number, server in enumerate(servers.split(","), start=1):
        host, port = server.split(":")
        changes[f"node{number}, port_value: 9092"] = f"{host}, port_value: {port}"
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


class Page:
    """Calls as a page of `ORIGIN` makes them."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def preflight(self, method: str, origin: str) -> httpx.Response:
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,x-grpc-web",
        }
        return await self._http.options(f"/streamlog.v1.{method}", headers=headers)

    async def post(self, path: str, content: bytes) -> httpx.Response:
        headers = {"Origin": ORIGIN, "Content-Type": "application/grpc-web+proto", "X-Grpc-Web": "1"}
        return await self._http.post(path, content=content, headers=headers)

    async def call(self, method: str, request: Message) -> tuple[list[bytes], dict[str, str]]:
        """The messages of the response, and its trailers."""
        sent = request.SerializeToString()
        response = await self.post(f"/streamlog.v1.{method}", HEADER.pack(0, len(sent)) + sent)
        assert response.status_code == 200, response.text
        assert response.headers["access-control-allow-origin"] == ORIGIN
        messages: list[bytes] = []
        trailers = {name: value for name, value in response.headers.items() if name.startswith("grpc-")}
        content = response.content
        while content:
            flags, length = HEADER.unpack_from(content)
            part, content = content[HEADER.size : HEADER.size + length], content[HEADER.size + length :]
            if flags & TRAILERS:
                trailers |= dict(line.split(":", 1) for line in part.decode().split("\r\n") if line)
            else:
                messages.append(part)
        return messages, trailers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    envoy = shutil.which("envoy")
    if envoy is None:
        pytest.skip("envoy not installed")
    folder = tmp_path_factory.mktemp("grpc-web")
    configuration, admin_address = folder / "envoy.yaml", folder / "admin"
    async with Processes(folder / "cluster") as processes:
        await processes.create_topic("orders", 3)
        configuration.write_text(recipe(processes.bootstrap_servers))
        command = [envoy, "--config-path", str(configuration), "--use-dynamic-base-id", "--log-level", "warning"]
        command += ["--admin-address-path", str(admin_address), "--concurrency", "1"]
        command += ["--config-yaml", "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}"]
        with (folder / "log").open("w") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            async with httpx.AsyncClient(timeout=60) as http:

                async def is_ready() -> bool:
                    assert process.returncode is None, (folder / "log").read_text()
                    address = admin_address.read_text() if admin_address.exists() else ""
                    if not address:
                        return False
                    counts = (await http.get(f"http://{address}/stats")).text
                    return "cluster.streamlog.membership_healthy: 3" in counts

                await processes.until(is_ready)
                listeners = await http.get(f"http://{admin_address.read_text()}/listeners?format=json")
            (listener,) = json.loads(listeners.text)["listener_statuses"]
            port = listener["local_address"]["socket_address"]["port_value"]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                yield Page(http)
        finally:
            process.kill()
            await process.wait()


async def test_pages_of_the_named_origin_only_may_call(page: Page) -> None:
    allowed = await page.preflight("Records/Publish", ORIGIN)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert "x-grpc-web" in allowed.headers["access-control-allow-headers"]
    refused = await page.preflight("Records/Publish", "https://other.example")
    assert "access-control-allow-origin" not in refused.headers


async def test_records_are_written_and_read(page: Page) -> None:
    values = [b"tea", b"coffee"]
    records = [records_pb2.PublishRecord(partition=1, value=value) for value in values]
    (written,), trailers = await page.call(
        "Records/Publish", records_pb2.PublishRequest(topic="orders", records=records)
    )
    assert trailers["grpc-status"] == "0"
    assert [one.offset for one in records_pb2.PublishResponse.FromString(written).results] == [0, 1]
    start = records_pb2.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST)
    end = records_pb2.EndPosition(bound=common_pb2.OFFSET_BOUND_LATEST)
    reading = records_pb2.SubscribePartitions(topic="orders", partitions=[1], start=start, end=end)
    responses, trailers = await page.call("Records/Subscribe", records_pb2.SubscribeRequest(subscriptions=[reading]))
    assert trailers["grpc-status"] == "0"
    parts = [part for one in responses for part in records_pb2.SubscribeResponse.FromString(one).partitions]
    assert [record.value for part in parts for record in part.records] == values


async def test_a_page_reads_why_a_call_failed(page: Page) -> None:
    records = [records_pb2.PublishRecord(value=b"x")]
    messages, trailers = await page.call("Records/Publish", records_pb2.PublishRequest(topic="nix", records=records))
    assert not messages
    assert trailers["grpc-status"] == "5"
    assert "topic 'nix' does not exist" in unquote(trailers["grpc-message"])
    assert "grpc-status-details-bin" in trailers


async def test_services_between_nodes_are_not_reached(page: Page) -> None:
    for path in ("/streamlog.internal.v1.Raft/Send", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"):
        assert (await page.post(path, HEADER.pack(0, 0))).status_code == 404
    (listed,), _ = await page.call("Admin/ListTopics", admin_pb2.ListTopicsRequest())
    assert [one.name for one in admin_pb2.ListTopicsResponse.FromString(listed).topics if one.name == "orders"]
