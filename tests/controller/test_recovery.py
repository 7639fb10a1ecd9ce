"""UncleanRecovery: it queries the replicas of leaderless partitions until the controller has elected leaders."""

from __future__ import annotations

import asyncio
from typing import Any

from streamlog.api.convert import replica_states as convert
from streamlog.api.pb import replication_pb2 as pb
from streamlog.controller.recovery import RETRY_S, UncleanRecovery
from streamlog.errors import ThrottledError
from streamlog.metadata.brokers.liveness import FenceBroker
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.topics.creation import CreatableTopic, CreateTopics
from streamlog.model import BrokerId, LeaderEpoch, Offset
from streamlog.sim import SimLoop, run

from .kit import Rule, heartbeat_of, registration
from .scripted_network import Answer, ScriptedNetwork

NODES = (BrokerId(1), BrokerId(2))


async def leaderless(rule: Rule) -> PartitionKey:
    """A partition whose two replicas were killed one after the other, and are back."""
    for node in NODES:
        await rule.term.ask(registration(1, node))
        await rule.term.ask(heartbeat_of(rule.view, node))
    await rule.term.ask(CreateTopics(topics=(CreatableTopic(name="t", assignments=(NODES,)),)))
    for node in NODES:
        epoch = rule.view.image.brokers[node].epoch
        await rule.term.ask(FenceBroker(broker_id=node, broker_epoch=epoch))
    for node in NODES:
        await rule.term.ask(registration(2, node))
        await rule.term.ask(heartbeat_of(rule.view, node))
    [key] = rule.view.image.roles.partitions(Role.LEADERLESS)
    return key


def replica(rule: Rule, node: BrokerId) -> Answer:
    """A node whose logs are as long as the other's."""

    def answer(method: str, request: bytes) -> bytes:
        image = rule.view.image
        epoch = image.brokers[node].epoch
        states = {
            key: ReplicaState(
                broker_id=node,
                broker_epoch=epoch,
                log_start=Offset(0),
                log_end=Offset(10),
                last_epoch=LeaderEpoch(0),
                durable=True,
            )
            for key in convert.request(pb.DescribeReplicasRequest.FromString(request))
        }
        return convert.to_response(epoch, states).SerializeToString()

    return answer


def test_a_full_queue_of_the_controller_delays_an_election() -> None:
    """It ended the controller term, and so all commands in the queue."""

    async def main(loop: SimLoop) -> None:
        asked = []

        async def submit(command: Any) -> Any:
            asked.append(command)
            if len(asked) == 1:
                raise ThrottledError("the queue is full")
            return await rule.term.ask(command)

        async with Rule() as rule:
            key = await leaderless(rule)
            network = ScriptedNetwork()
            network.nodes = {f"n{node}:9092": replica(rule, node) for node in NODES}
            recovery = UncleanRecovery(
                view=rule.view, network=network, context_of=rule.context_of, submit=submit, probe=rule.probe
            )
            running = asyncio.create_task(recovery.run())
            await asyncio.sleep(RETRY_S / 2)
            assert len(asked) == 1
            await asyncio.sleep(RETRY_S)
            assert rule.view.image.partition(key).leader in NODES
            running.cancel()
            await asyncio.wait([running])

    run(main)
