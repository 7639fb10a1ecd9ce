"""Plans of the scripted tests."""

from __future__ import annotations

from msgspec.structs import replace

from streamlog.sim.faults import Fault, Hardware

from ..plan import PLAIN, Load, Plan, make_plan
from ..run import with_faults

BUSY = Load(
    producers=2,
    sends_per_s=40.0,
    burst_chance=0.0,
    value_bytes_max=100,
    consumers=1,
    producer={"linger.ms": "0"},
    consumer={},
)


def plain_plan(seed: int, *faults: Fault) -> Plan:
    """Three ordinary machines with default settings, and these faults."""
    plan = make_plan(seed)
    nodes = ("n1", "n2", "n3")
    return replace(
        with_faults(plan, faults),
        nodes=nodes,
        voters=3,
        hardware=Hardware.healthy(nodes),
        settings={"log.index.size.max.bytes": "4096"},
        topics=(replace(plan.topic(PLAIN), partitions=1),),
        load=BUSY,
        tunes=False,
        moves=False,
        votes=False,
        deletes=False,
    )
