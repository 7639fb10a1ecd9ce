"""Random histories of a replicated partition."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.replication.cluster import LAG_MAX_MS, Cluster


def round_of(cluster: Cluster, *brokers: int) -> None:
    for broker in brokers:
        cluster.replicate(broker)
        cluster.sync(broker)
        cluster.report(broker)


class ReplicatedLives(RuleBasedStateMachine):
    """Whatever order things happen in: what was acknowledged stays, at its offset, on the current leader."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self.count = 0
        self.high_watermark = (-1, 0)

    @rule()
    def produce(self) -> None:
        self.count += 1
        self.cluster.produce(b"%d" % self.count)

    @rule(broker=st.integers(0, 2))
    def sync(self, broker: int) -> None:
        self.cluster.sync(broker)

    @rule(broker=st.integers(0, 2), size_max=st.sampled_from([1, 200, 100_000]))
    def replicate(self, broker: int, size_max: int) -> None:
        self.cluster.replicate(broker, size_max)

    @rule(broker=st.integers(0, 2))
    def report(self, broker: int) -> None:
        self.cluster.report(broker)

    @rule(broker=st.integers(0, 2))
    def whole_round(self, broker: int) -> None:
        round_of(self.cluster, broker)

    @rule(passed_ms=st.sampled_from([1, 600, LAG_MAX_MS + 1]))
    def look_at_isr(self, passed_ms: int) -> None:
        self.cluster.now_ms += passed_ms
        self.cluster.look_at_isr()

    @rule(broker=st.integers(0, 2), power=st.booleans())
    def die(self, broker: int, power: bool) -> None:
        self.cluster.die(broker, power=power)

    @rule(broker=st.integers(0, 2))
    def come_back(self, broker: int) -> None:
        self.cluster.come_back(broker)

    @rule()
    def calm_down(self) -> None:
        """Else most lives pass with one replica in sync, where nothing is acknowledged and nothing can be lost."""
        self.cluster.heal()

    @rule(syncs=st.lists(st.integers(0, 2), max_size=2), power=st.booleans())
    def produce_and_lose_the_leader(self, syncs: list[int], power: bool) -> None:
        self.produce()
        for broker in syncs:
            self.cluster.sync(broker)
        if self.cluster.leader_id is not None:
            self.cluster.die(self.cluster.leader_id, power=power)

    @rule(broker=st.integers(0, 2), power=st.booleans(), replicated=st.booleans())
    def produce_and_lose_a_replica(self, broker: int, power: bool, replicated: bool) -> None:
        self.produce()
        if replicated:
            for other in range(3):
                self.cluster.replicate(other)
                self.cluster.report(other)
        self.cluster.die(broker, power=power)
        self.cluster.come_back(broker)

    @rule(choice=st.integers(0, 2))
    def move_leader(self, choice: int) -> None:
        candidates = [b for b in self.cluster.isr if self.cluster.replicas[b].up]
        if candidates:
            self.cluster.elect(candidates[choice % len(candidates)])

    @rule()
    def power_cut_of_all(self) -> None:
        for broker in range(3):
            self.cluster.die(broker, power=True)
        for broker in range(3):
            self.cluster.come_back(broker)

    @invariant()
    def the_leader_has_what_was_acknowledged(self) -> None:
        if not hasattr(self, "cluster") or self.cluster.leader_id is None:
            return
        cluster = self.cluster
        found = cluster.records(cluster.leader.broker)
        for offset, value in cluster.acknowledged.items():
            assert found.get(offset) == value, f"acknowledged {value!r} is not at {offset}"
        leader = cluster.leader.leader
        assert leader is not None
        now = (cluster.epoch, leader.high_watermark)
        if now[0] == self.high_watermark[0]:
            assert now[1] >= self.high_watermark[1]  # I9
        self.high_watermark = now

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.cluster.heal()
        records = [self.cluster.records(broker) for broker in range(3)]
        assert records[0] == records[1] == records[2]  # I8
        assert self.cluster.acknowledged.items() <= records[0].items()  # I1
        self.cluster.close()


ReplicatedLives.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
