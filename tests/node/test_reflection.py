"""gRPC's reflection of a whole node: what clients may call, and nothing of what nodes call among themselves."""

from __future__ import annotations

from grpc_reflection.v1alpha import reflection_pb2 as pb

from streamlog.api import calls
from streamlog.errors import Status
from streamlog.node.served_methods import REFLECTION, client_services
from streamlog.ports import Network

from .kit import Nodes, run_story


async def asked(network: Network, method: str, **question: str) -> pb.ServerReflectionResponse:
    channel = network.connect("n1:9092")
    try:
        async with calls.stream(channel, method.lstrip("/"), pb.ServerReflectionResponse) as stream:
            await stream.send(pb.ServerReflectionRequest(**question))
            answer = await stream.recv()
            assert answer is not None
            return answer
    finally:
        await channel.close()


def test_reflection_lists_the_services_for_clients_only() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        client = nodes.world.host("client")
        network = client.boot().network
        for method in REFLECTION:
            own = [one.strip("/").rpartition("/")[0] for one in REFLECTION]
            listed = await client.spawn(asked(network, method, list_services="*"))
            names = [one.name for one in listed.list_services_response.service]
            assert names == sorted([*client_services(), "grpc.health.v1.Health", *own])
            for symbol in (
                "streamlog.internal.v1.Coordination",
                "streamlog.internal.v1.Coordination.AddPartitions",
                "streamlog.internal.v1.WriteMarkersRequest",
            ):
                question = asked(network, method, file_containing_symbol=symbol)
                found = await client.spawn(question)
                assert found.error_response.error_code == Status.NOT_FOUND.value
            file = asked(network, method, file_by_filename="streamlog/internal/v1/coordination.proto")
            found = await client.spawn(file)
            assert found.error_response.error_code == Status.NOT_FOUND.value

    run_story(story, voters=1)
