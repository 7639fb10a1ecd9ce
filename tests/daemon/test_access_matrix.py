"""Every method, called by everyone who should not and by those who may: a real node, exact statuses.

The requests are made from the descriptors: every name in them is of something that the caller has no right to.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from streamlog.access.acl import CLUSTER_NAME, Acl, AclOperation, AclResourceType
from streamlog.cli.main import main
from streamlog.client import Admin, AsyncAdmin, Producer
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import SaslAuthenticationError, TopicAuthorizationError
from streamlog.node.served_methods import CLIENT_FILES, NODE_FILES
from streamlog.tls import authority as authority_module
from streamlog.tls.authority import CA_CERTIFICATE, Authority
from streamlog.tls.callers import INTERNAL_PREFIX
from tests.support.tokens import AUDIENCE, ISSUER, TokenIssuer, key_set

pytestmark = pytest.mark.process

WAIT_S: Final = 30.0
NAME: Final = "not-mine"
DEEP_MAX: Final = 6
Status = grpc.StatusCode

# Of a caller with no right at all. In the response: the partition or topic alone is refused, with its own error.
OPEN: Final = frozenset(
    {"Cluster/Describe", "Admin/ListTopics", "Admin/ListGroups", "Admin/ListTransactions", "Batches/WatchMetadata"}
)
IN_THE_RESPONSE: Final = frozenset(
    {
        "Admin/DescribeTopics",
        "Batches/Metadata",
        "Batches/Produce",
        "Batches/ProduceStream",
        "Batches/Fetch",
        "Batches/FetchStream",
        "Batches/ListOffsets",
        "Batches/OffsetForLeaderEpoch",
    }
)
ATTEMPTS: Final = 5
BROKEN: Final = (Status.UNAVAILABLE, Status.INTERNAL)
"""gRPC's client loses the status of a stream that is refused while it sends, and makes one of these of it."""
LEFT_OUT: Final = ("page_token", "pattern", "validate_only", "host", "end_offset", "transactional_id")
"""The transactional id: for messages that may have one, so that the partitions are looked at."""
BY_HTTP: Final = " over HTTP"
REFUSED_BY_TLS: Final = ("no certificate", "foreign authority", "expired certificate")
UNKNOWN: Final = ("no login", "wrong password", "deleted user", "expired token", "token for others", "token of others")
SLOWED_DOWN: Final = ("wrong password", "deleted user")
MAY: Final = ("right user", "right token", "another node")
TOKENS: Final = TokenIssuer()


def methods() -> Iterator[MethodDescriptor]:
    for file in (*CLIENT_FILES, *NODE_FILES):
        for service in file.services_by_name.values():
            yield from service.methods


def is_internal(method: MethodDescriptor) -> bool:
    return f"/{method.full_name}".startswith(INTERNAL_PREFIX)


def short(method: MethodDescriptor) -> str:
    return f"{method.containing_service.name}/{method.name}"


def filled(descriptor: Any, depth: int = 0) -> Message:
    """Every text is NAME, every list has one entry, of each oneof the first field is set."""
    message = GetMessageClass(descriptor)()
    chosen: set[str] = set()
    for field in descriptor.fields:
        one_of = field.containing_oneof
        if one_of is not None and len(one_of.fields) > 1:
            if one_of.name in chosen:
                continue
            chosen.add(one_of.name)
        if field.name in LEFT_OUT or (field.type == FieldDescriptor.TYPE_BYTES and field.name != "batches"):
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE and (
            depth > DEEP_MAX or field.message_type.GetOptions().map_entry
        ):
            continue
        _fill(message, field, depth)
    return message


def request_of(method: MethodDescriptor) -> bytes:
    message: Any = filled(method.input_type)
    if "transactional_id" in method.input_type.fields_by_name and short(method) not in IN_THE_RESPONSE:
        message.transactional_id = NAME
    return bytes(message.SerializeToString())


def _fill(message: Message, field: Any, depth: int) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        inner = filled(field.message_type, depth + 1)
        if field.is_repeated:
            getattr(message, field.name).append(inner)
        else:
            getattr(message, field.name).CopyFrom(inner)
        return
    value: Any = 1
    if field.type == FieldDescriptor.TYPE_STRING:
        value = "User:x" if field.name == "principal" else NAME
    elif field.type == FieldDescriptor.TYPE_BYTES:
        value = b"x"
    elif field.type == FieldDescriptor.TYPE_ENUM:
        value = next(one.number for one in field.enum_type.values if one.number)
    elif field.type == FieldDescriptor.TYPE_BOOL:
        value = False
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif field.type != FieldDescriptor.TYPE_BOOL:
        setattr(message, field.name, value)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("matrix") / "cluster"
    keys = directory.with_name("keys.json")
    keys.write_bytes(key_set(TOKENS))
    command = ["local", "start", "--dir", str(directory), "--port", "0", "--nodes", "1", "--secure"]
    command += ["--timeout-s", "180"]
    for name, value in (
        ("jwks.endpoint.url", keys.as_uri()),
        ("expected.issuer", ISSUER),
        ("expected.audience", AUDIENCE),
    ):
        command += ["--override", f"sasl.oauthbearer.{name}={value}"]
    command += ["--override", "http.api.enable=true"]
    command += ["--override", "broker.session.timeout.ms=60000"]  # a busy machine ends no access lease
    started = CliRunner().invoke(main, command)
    assert started.exit_code == 0, started.output
    running = LocalCluster(directory)
    yield running
    for node in running.nodes:
        running.kill(node)


class Caller:
    """With these credentials."""

    def __init__(
        self, address: str, credentials: grpc.ChannelCredentials, login: str | None = None, token: str | None = None
    ) -> None:
        self.channel: Any = grpc.aio.secure_channel(
            address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        header = None if login is None else "Basic " + base64.b64encode(login.encode()).decode()
        if token is not None:
            header = f"Bearer {token}"
        self.metadata = None if header is None else (("authorization", header),)

    async def call(self, method: MethodDescriptor, request: bytes) -> tuple[grpc.StatusCode, bytes]:
        """The status, and the first response. A stream that answers nothing while it is open is OK."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        try:
            async with asyncio.timeout(WAIT_S):
                if not (method.client_streaming or method.server_streaming):
                    return Status.OK, await self.channel.unary_unary(path)(request, metadata=self.metadata)
                stream = self.channel.stream_stream(path)(iter([request]), metadata=self.metadata)
                try:
                    response = await stream.read()
                    return (Status.OK, response) if isinstance(response, bytes) else (await stream.code(), b"")
                finally:
                    stream.cancel()
        except grpc.aio.AioRpcError as error:
            return error.code(), b""


class HttpCaller:
    """Over HTTP, where no caller has a certificate."""

    def __init__(self, url: str, authorization: str | None = None) -> None:
        self._address = url.removeprefix("http://")
        self._headers = {"content-type": "application/proto"}
        if authorization is not None:
            self._headers["authorization"] = authorization

    async def call(self, method: MethodDescriptor, request: bytes) -> tuple[grpc.StatusCode, bytes]:
        return await asyncio.to_thread(self._call, method, request)

    def _call(self, method: MethodDescriptor, request: bytes) -> tuple[grpc.StatusCode, bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=WAIT_S)
        try:
            path = f"/{method.containing_service.full_name}/{method.name}"
            connection.request("POST", path, request, self._headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status == 200:
            return Status.OK, body
        return getattr(Status, json.loads(body)["code"].upper()), b""


def http_callers(cluster: LocalCluster, right: str, without: str) -> dict[str, HttpCaller]:
    """`right`, `without`: passwords of these users."""

    def basic(login: str) -> str:
        return "Basic " + base64.b64encode(login.encode()).decode()

    (node,) = cluster.nodes
    headers = {
        "right user": basic(f"right:{right}"),
        "right token": f"Bearer {TOKENS.token('right')}",
        "user without right": basic(f"without:{without}"),
        "token without right": f"Bearer {TOKENS.token('without')}",
        "expired token": f"Bearer {TOKENS.token('right', lifetime_s=-60)}",
        "wrong password": basic("right:wrong password"),
        "no login": None,
    }
    return {f"{who}{BY_HTTP}": HttpCaller(node.http, header) for who, header in headers.items()}


def credentials(cluster: LocalCluster, name: str | None, roots: bytes | None = None) -> grpc.ChannelCredentials:
    certs = cluster.directory / "certs"
    key = None if name is None else (certs / f"{name}.pem").read_bytes()
    return grpc.ssl_channel_credentials(roots or (certs / CA_CERTIFICATE).read_bytes(), key, key)


async def callers(cluster: LocalCluster, admin: AsyncAdmin, foreign: bytes) -> dict[str, Caller | HttpCaller]:
    address = cluster.nodes[0].address
    authority = Authority.load(cluster.directory / "certs")
    authority.add_client("apps")
    authority.add_node(7, ["localhost"])
    with mock.patch.object(authority_module, "_BACKDATED", datetime.timedelta(days=2)):
        authority.add_client("expired", days=-1)
    right, without, deleted = [await admin.create_user(name) for name in ("right", "without", "deleted")]
    await admin.create_acls(
        Acl(
            resource_type=kind,
            name="*" if kind is not AclResourceType.CLUSTER else CLUSTER_NAME,
            principal="User:right",
            operation=AclOperation.ALL,
        )
        for kind in AclResourceType
    )
    apps = credentials(cluster, "apps")
    found: dict[str, Caller | HttpCaller] = {
        **http_callers(cluster, right, without),
        "right user": Caller(address, apps, f"right:{right}"),
        "right token": Caller(address, apps, token=TOKENS.token("right")),
        "user without right": Caller(address, apps, f"without:{without}"),
        "token without right": Caller(address, apps, token=TOKENS.token("without")),
        "expired token": Caller(address, apps, token=TOKENS.token("right", lifetime_s=-60)),
        "token for others": Caller(address, apps, token=TOKENS.token("right", aud="billing")),
        "token of others": Caller(address, apps, token=TokenIssuer().token("right")),
        "deleted user": Caller(address, apps, f"deleted:{deleted}"),
        "client certificate": Caller(address, apps),
        "another node": Caller(address, credentials(cluster, "node-7")),
        "wrong password": Caller(address, apps, "right:wrong password"),
        "no certificate": Caller(address, credentials(cluster, None)),
        "expired certificate": Caller(address, credentials(cluster, "expired")),
        "foreign authority": Caller(
            address,
            grpc.ssl_channel_credentials((cluster.directory / "certs" / CA_CERTIFICATE).read_bytes(), foreign, foreign),
        ),
    }
    describe = next(method for method in methods() if short(method) == "Cluster/Describe")
    for name in ("right user", "user without right", "deleted user"):
        assert (await found[name].call(describe, b""))[0] is Status.OK, name
    await admin.delete_user("deleted")
    return found


def expected(who: str, method: MethodDescriptor, status: grpc.StatusCode, response: bytes) -> bool:
    if who.endswith(BY_HTTP):
        if is_internal(method) or method.client_streaming:
            return status is Status.UNIMPLEMENTED
        who = who.removesuffix(BY_HTTP)
    if who in REFUSED_BY_TLS:
        return status is Status.UNAVAILABLE
    if is_internal(method):
        if who == "another node":
            return status not in (Status.UNAUTHENTICATED, Status.INTERNAL, Status.UNKNOWN)
        return status is Status.PERMISSION_DENIED
    if who in UNKNOWN:
        # After some failures of a user, or from an address, no further password is checked for a while.
        return status is Status.UNAUTHENTICATED or (who in SLOWED_DOWN and status is Status.RESOURCE_EXHAUSTED)
    if who in MAY:
        return status not in (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED, Status.INTERNAL, Status.UNKNOWN)
    if short(method) in OPEN:
        return status is Status.OK
    if short(method) in IN_THE_RESPONSE:
        return status is Status.OK and b"TOPIC_AUTHORIZATION_FAILED" in response
    return status is Status.PERMISSION_DENIED


def test_every_method_for_every_caller(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    foreign = Authority.create(tmp_path_factory.mktemp("foreign")).add_client("stranger").read_bytes()
    wrong = asyncio.run(_wrong(cluster, foreign))
    assert not wrong, "\n".join(wrong)


async def _wrong(cluster: LocalCluster, foreign: bytes) -> list[str]:
    found = []
    async with AsyncAdmin({**cluster.client_settings, "bootstrap.servers": cluster.nodes[0].address}) as admin:
        everyone = await callers(cluster, admin, foreign)
        for who, caller in everyone.items():
            for method in methods():
                # One that may gets an empty request, which changes nothing.
                request = b"" if who.removesuffix(BY_HTTP) in MAY or is_internal(method) else request_of(method)
                for _ in range(ATTEMPTS):
                    status, response = await caller.call(method, request)
                    if who in REFUSED_BY_TLS or status not in BROKEN:
                        break
                if not expected(who, method, status, response):
                    found.append(f"{who}, {short(method)}: {status.name} {response[:200]!r}")
            if isinstance(caller, Caller):
                await caller.channel.close()
        assert await admin.list_users() == ("right", "without"), "nothing was changed"
        assert not [topic for topic in await admin.list_topics() if topic.name == NAME]
    return found


def test_the_python_client_logs_in_with_a_token(cluster: LocalCluster, tmp_path: Path) -> None:
    """From a file, as one that is mounted into a container; the user may write one topic only."""
    file = tmp_path / "token"
    file.write_text(TOKENS.token("writer"))
    login = {
        **cluster.client_settings,
        "bootstrap.servers": cluster.nodes[0].address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    with Admin({**cluster.client_settings, "bootstrap.servers": cluster.nodes[0].address}) as admin:
        admin.create_topic("by-token", partitions=1)
        admin.create_topic("not-by-token", partitions=1)
        admin.create_acls(
            [
                Acl(resource_type=AclResourceType.TOPIC, name="by-token", principal="User:writer", operation=operation)
                for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
            ]
        )
    with Producer(login) as producer:
        assert producer.send("by-token", b"hello").result(WAIT_S).offset == 0
        with pytest.raises(TopicAuthorizationError):
            producer.send("not-by-token", b"hello").result(WAIT_S)
    file.write_text(TOKENS.token("writer", aud="billing"))
    with (
        pytest.raises(SaslAuthenticationError, match="its audience is billing, expected streamlog"),
        Admin(login) as admin,
    ):
        admin.list_topics()
