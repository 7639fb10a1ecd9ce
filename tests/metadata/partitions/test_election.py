"""Who leads, who is in sync, who is eligible: SEMANTICS 3 and 4, KIP-966."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlog.metadata.configs.rules import TopicRules, effective_min_isr
from streamlog.metadata.image.delta import changed
from streamlog.metadata.partitions.election import Occasion, difference, revise, revised
from streamlog.metadata.partitions.replica_states import RecoveryStrategy, ReplicaState
from streamlog.metadata.records import Partition, PartitionChangeRecord
from streamlog.model import NO_BROKER, BrokerId, LeaderEpoch, PartitionEpoch, PartitionId
from tests.metadata.examples import TOPIC, ids
from tests.metadata.invariants import check_partition
from tests.metadata.rig import replica_state

KEY = (TOPIC, PartitionId(0))


def rules(*active: int, min_isr: int | None = None, unclean: bool = False, **what: Any) -> TopicRules:
    recovery = RecoveryStrategy.AGGRESSIVE if unclean else RecoveryStrategy.BALANCED
    how = {"recovery": recovery, **what}
    return TopicRules(active=frozenset(ids(*active)), min_insync_replicas=min_isr, **how)


def states(**logs: tuple[int, int]) -> tuple[ReplicaState, ...]:
    """`n2=(last epoch, log end)`: what node 2 says."""
    return tuple(replica_state(int(name[1:]), *log) for name, log in logs.items())


def partition(*replicas: int, **state: Any) -> Partition:
    """Led by the first replica, all in sync, unless said otherwise."""
    state = {key: ids(*value) if isinstance(value, tuple) else value for key, value in state.items()}
    leader = state.get("leader", replicas[0])
    return Partition(
        **{
            "replicas": ids(*replicas),
            "isr": ids(*replicas),
            "leader": BrokerId(leader),
            "last_leader": leader,
            **state,
        }
    )


def after(state: Partition, rules: TopicRules, **occasion: Any) -> Partition:
    record = revise(KEY, state, rules, Occasion(**occasion))
    return state if record is None else changed(state, record)


class TestOrder:
    """SEMANTICS 4: valid leader, else first live ISR member in replica order, else ELR, else unclean if allowed."""

    def test_a_valid_leader_stays(self) -> None:
        state = partition(1, 2, 3, leader=2)
        assert revise(KEY, state, rules(1, 2, 3)) is None

    def test_the_first_live_one_in_sync_in_the_order_of_replicas(self) -> None:
        state = partition(1, 3, 2, leader=1)
        new = after(state, rules(2, 3))
        assert (new.leader, new.isr, new.leader_epoch) == (3, ids(3, 2), 1)

    def test_the_order_of_the_isr_does_not_matter(self) -> None:
        state = partition(1, 2, 3, isr=(3, 2, 1))
        assert after(state, rules(2, 3)).leader == 2

    def test_nobody_in_sync_is_alive_then_the_eligible(self) -> None:
        state = partition(1, 2, 3, isr=(1,), elr=(3,), leader=1)
        new = after(state, rules(2, 3))
        assert (new.leader, new.isr, new.elr) == (3, ids(3), ids(1))

    def test_the_eligible_go_in_the_order_of_replicas(self) -> None:
        state = partition(1, 2, 3, isr=(), elr=(3, 2), leader=NO_BROKER, last_leader=1)
        assert after(state, rules(2, 3)).leader == 2

    def test_nobody_eligible_is_alive_then_none(self) -> None:
        state = partition(1, 2, 3, isr=(1,), elr=(3,), leader=1)
        new = after(state, rules(2))
        assert (new.leader, new.isr, new.elr) == (NO_BROKER, (), ids(1, 3))
        assert new.leader_epoch == 1
        assert revise(KEY, new, rules(2)) is None, "that is all there is to do"

    def test_unclean_only_where_it_is_allowed(self) -> None:
        state = partition(1, 2, 3, isr=(1,), leader=1)
        assert after(state, rules(2, 3)).leader == NO_BROKER
        said = states(n2=(0, 5), n3=(0, 4))
        assert after(state, rules(2, 3), states=said).leader == NO_BROKER
        assert after(state, rules(2, 3, unclean=True)).leader == NO_BROKER, "not before they have answered"
        new = after(state, rules(2, 3, unclean=True), states=said)
        assert (new.leader, new.isr) == (2, ids(2))

    def test_an_eligible_one_goes_before_an_unclean_one(self) -> None:
        state = partition(1, 2, 3, isr=(1,), elr=(3,), leader=1)
        assert after(state, rules(2, 3, unclean=True), states=states(n2=(9, 9), n3=(0, 0))).leader == 3

    def test_an_operator_may_ask_for_an_unclean_one(self) -> None:
        state = partition(1, 2, 3, isr=(), elr=(1,), leader=NO_BROKER)
        assert after(state, rules(3), allow_unclean=True, states=states(n3=(0, 1))).leader == 3

    def test_an_unclean_leader_is_no_replica_that_has_just_begun_to_copy_if_there_is_another(self) -> None:
        state = partition(3, 1, 2, adding=(3,), removing=(1,), isr=(1,), leader=1)
        said = states(n2=(0, 5), n3=(0, 5))
        assert after(state, rules(2, 3, unclean=True), states=said).leader == 2

    def test_the_preferred_leader_comes_back_when_it_is_asked_for(self) -> None:
        state = partition(1, 2, 3, leader=2)
        assert after(state, rules(1, 2, 3), prefer_first=True).leader == 1
        assert after(partition(1, 2, 3, isr=(2, 3), leader=2), rules(1, 2, 3), prefer_first=True).leader == 2


class TestLastLeader:
    """KIP-966: with no replica in sync or eligible, the last leader is the one that was eligible last."""

    dead = partition(1, 2, 3, isr=(), leader=NO_BROKER, last_leader=2)

    def test_it_leads_again(self) -> None:
        assert revise(KEY, self.dead, rules(1, 2, 3)) is None, "it has not reported yet that its log was not cut"
        new = after(self.dead, rules(1, 2, 3), states=states(n2=(0, 5)))
        assert (new.leader, new.isr) == (2, ids(2))

    def test_without_synced_appends_too(self) -> None:
        """Kafka's flush policy: as KIP-966 has it, whatever the strategy."""
        said = (*states(n1=(0, 9)), replica_state(2, 0, 5, durable=False))
        assert after(self.dead, rules(1, 2, 3, recovery=RecoveryStrategy.NONE), states=said).leader == 2

    def test_at_once_where_nodes_do_not_report_it_or_nobody_else_has_a_replica(self) -> None:
        assert after(self.dead, rules(1, 2, 3, remembers=False)).leader == 2
        alone = partition(2, isr=(), leader=NO_BROKER, last_leader=2)
        assert after(alone, rules(2), states=(replica_state(2, 0, 5, damaged=True),)).leader == 2

    def test_not_at_once_where_its_log_was_cut(self) -> None:
        """Another one, which had fallen out of the ISR, has more (simulated seed 97 of the cluster)."""
        said = (*states(n1=(0, 9)), replica_state(2, 0, 5, incomplete=True))
        assert after(self.dead, rules(1, 2, 3), states=said).leader == NO_BROKER, "node 3 may have still more"
        assert after(self.dead, rules(1, 2), states=said).leader == 1
        assert after(self.dead, rules(1, 2, recovery=RecoveryStrategy.NONE), states=said).leader == NO_BROKER
        assert after(self.dead, rules(1, 2), states=said[1:]).leader == NO_BROKER, "node 1 has not answered"
        assert after(self.dead, rules(2), states=said[1:]).leader == 2, "the best there is among the active"
        assert after(self.dead, rules(1, 2, 3, unclean=True), states=said).leader == 1

    def test_of_equal_logs_the_one_whose_start_is_latest(self) -> None:
        """The records before it were deleted, with the last leader's acknowledgement (simulated seed 2060403)."""
        said = (*states(n1=(0, 9)), replica_state(2, 0, 9, start=4, incomplete=True))
        assert after(self.dead, rules(1, 2), states=said).leader == 2
        longer = (*states(n1=(0, 10)), said[1])
        assert after(self.dead, rules(1, 2), states=longer).leader == 1

    def test_nobody_else_does(self) -> None:
        assert revise(KEY, self.dead, rules(1, 3)) is None

    def test_not_while_somebody_is_eligible(self) -> None:
        state = partition(1, 2, 3, isr=(), elr=(3,), leader=NO_BROKER, last_leader=2)
        assert revise(KEY, state, rules(1, 2)) is None

    def test_not_when_its_disk_is_lost(self) -> None:
        new = after(self.dead, rules(1, 3), lost_disks=ids(2), unclean_stops=ids(2))
        assert new.last_leader == NO_BROKER
        assert revise(KEY, new, rules(1, 2, 3)) is None

    def test_the_loss_of_another_disk_is_nothing_to_it(self) -> None:
        assert revise(KEY, self.dead, rules(1, 3), Occasion(lost_disks=ids(3))) is None

    def test_a_successor_takes_its_place(self) -> None:
        state = partition(1, 2, isr=(1, 2), leader=1)
        new = after(state, rules(2), lost_disks=ids(1), unclean_stops=ids(1))
        assert (new.leader, new.last_leader) == (2, 2)

    def test_all_nodes_are_killed_and_come_back_uncleanly(self) -> None:
        """FAULTS I1: a power cut of all nodes; no partition may stay without a leader when all are back."""
        state = partition(1, 2, 3, leader=2)
        for gone in ((2,), (1,), (3,)):
            state = after(state, rules(*(b for b in (1, 2, 3) if b not in gone)))
            state = after(state, rules(), unclean_stops=ids(*gone))
        assert (state.isr, state.elr, state.leader) == ((), (), NO_BROKER)
        assert state.last_known_elr == ids(1, 3), "2 left while there were enough"
        assert after(state, rules(1, 2, 3)).leader == NO_BROKER, "the longest of their logs, and they have said nothing"
        new = after(state, rules(1, 2, 3), states=states(n1=(0, 9), n2=(0, 8), n3=(0, 9)))
        assert new.leader == 1


class TestLastKnown:
    """KIP-966: who was in sync or eligible and stopped uncleanly has all that was committed, if its disk has."""

    def lost(self, *order: int, isr: tuple[int, ...] = (1, 3)) -> Partition:
        """All are killed and come back in this order, node 1 without its disk; 2 has been out of the ISR."""
        state = partition(1, 2, 3, isr=isr, leader=isr[0])
        for node in order:
            disks = ids(node) if node == 1 else ()
            alive = [b for b in (1, 2, 3) if b != node]
            state = after(state, rules(*alive), unclean_stops=ids(node), lost_disks=disks)
        return state

    @pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
    def test_a_lost_disk_and_a_stale_replica_the_one_full_copy_leads(self, order: tuple[int, ...]) -> None:
        state = after(self.lost(*order), rules(1, 2, 3), states=states(n1=(-1, 0), n2=(0, 600), n3=(0, 1200)))
        assert (state.leader, state.isr) == (3, ids(3))

    def test_it_needs_no_answer_of_anybody_else(self) -> None:
        state = self.lost(3, 2, 1)
        assert state.last_known_elr == ids(3)
        assert after(state, rules(3), states=states(n3=(0, 1200))).leader == 3

    def test_nobody_else_leads_without_it(self) -> None:
        state = self.lost(3, 2, 1)
        said = states(n1=(-1, 0), n2=(0, 600))
        assert after(state, rules(1, 2), states=said).leader == NO_BROKER
        assert after(state, rules(1, 2, unclean=True), states=said).leader == 2

    def test_without_synced_appends_all_of_them_must_answer(self) -> None:
        state = partition(1, 2, 3, isr=(), last_known_elr=(2, 3), leader=NO_BROKER, last_leader=NO_BROKER)
        said = tuple(replica_state(node, 0, end, durable=False) for node, end in ((2, 70), (3, 80)))
        assert after(state, rules(2, 3), states=said[:1]).leader == NO_BROKER
        assert after(state, rules(2, 3, recovery=RecoveryStrategy.NONE), states=said).leader == NO_BROKER
        new = after(state, rules(2, 3), states=said)
        assert (new.leader, new.last_known_elr) == (3, ()), "its log is the truth now, whatever the other one had"

    def test_a_damaged_log_neither_leads_nor_proves(self) -> None:
        state = partition(1, 2, 3, isr=(), last_known_elr=(3,), leader=NO_BROKER, last_leader=NO_BROKER)
        said = (*states(n2=(0, 60)), replica_state(3, 0, 100, damaged=True))
        assert after(state, rules(2, 3), states=said).leader == NO_BROKER
        assert after(state, rules(2, 3, unclean=True), states=said).leader == 2

    def test_a_log_that_was_cut_does_not_lead_before_a_complete_one(self) -> None:
        """What is left of a damaged log may carry an epoch that it never had (simulated seed 138 of the cluster)."""
        state = partition(1, 2, 3, isr=(), last_known_elr=(2, 3), leader=NO_BROKER, last_leader=NO_BROKER)
        said = (replica_state(2, 5, 1, durable=False), replica_state(3, 3, 23))
        assert after(state, rules(2, 3), states=said).leader == 3

    def test_a_log_with_an_epoch_that_damage_made_does_not_lead_before_a_known_one(self) -> None:
        """An epoch is outside of a batch's CRC (simulated seed 321 of the cluster)."""
        state = partition(1, 2, 3, isr=(), last_known_elr=(1, 3), leader=NO_BROKER, last_leader=3)
        said = (replica_state(1, 2, 13), replica_state(2, 3, 9), replica_state(3, 2, 14))
        assert after(state, rules(1, 2, 3), states=said).leader == 3

    def test_a_later_epoch_is_longer_than_more_offsets(self) -> None:
        state = partition(1, 2, 3, isr=(), last_known_elr=(3,), leader=NO_BROKER, last_leader=NO_BROKER)
        assert after(state, rules(2, 3), states=states(n2=(4, 900), n3=(5, 100))).leader == 3

    def test_the_others_stay_known_until_enough_are_in_sync(self) -> None:
        state = partition(1, 2, 3, isr=(), last_known_elr=(2, 3), leader=NO_BROKER, last_leader=NO_BROKER)
        new = after(state, rules(2), states=states(n2=(0, 9)))
        assert (new.leader, new.last_known_elr) == (2, ids(3))
        assert after(new, rules(1, 2), isr=ids(2, 1)).last_known_elr == ()

    def test_not_where_the_metadata_version_has_no_place_for_it(self) -> None:
        assert after(partition(1, 2, 3, isr=(1,), elr=(2,)), rules(remembers=False), unclean_stops=ids(2)).elr == ids(1)
        new = after(partition(1, 2, 3, isr=(1,), elr=(2,)), rules(remembers=False), unclean_stops=ids(2))
        assert new.last_known_elr == ()


class TestEligible:
    """SEMANTICS 4: ELR = (old ISR + ELR) - new ISR - unclean, while |ISR| < min ISR; cleared once it is reached."""

    def test_enough_in_sync_none_eligible(self) -> None:
        assert after(partition(1, 2, 3), rules(1, 2)).elr == ()

    def test_too_few_in_sync(self) -> None:
        state = after(partition(1, 2, 3), rules(1, 2))
        assert (state.isr, state.elr) == (ids(1, 2), ())
        state = after(state, rules(1))
        assert (state.isr, state.elr) == (ids(1), ids(2)), "3 left while there were enough: it may lack records"
        state = after(state, rules())
        assert (state.isr, state.elr, state.leader) == ((), ids(1, 2), NO_BROKER)

    def test_at_once(self) -> None:
        state = after(partition(1, 2, 3), rules(1))
        assert (state.isr, state.elr) == (ids(1), ids(2, 3)), "nothing was committed without them"

    def test_cleared_once_there_are_enough(self) -> None:
        state = partition(1, 2, 3, isr=(1,), elr=(2,), leader=1)
        assert after(state, rules(1, 2, 3), isr=ids(1, 3)).elr == ()

    def test_it_counts_against_the_replication_factor(self) -> None:
        state = partition(1, isr=(1,), leader=1)
        assert after(state, rules(1), isr=ids(1)).elr == ()
        assert after(state, rules(min_isr=3)).elr == ids(1)

    def test_who_stopped_uncleanly_is_not_eligible(self) -> None:
        state = partition(1, 2, 3, isr=(1,), elr=(2, 3), leader=1)
        assert after(state, rules(1), unclean_stops=ids(2)).elr == ids(3)
        state = after(partition(1, 2, 3), rules(1), unclean_stops=ids(2))
        assert (state.isr, state.elr) == (ids(1), ids(3))

    def test_who_lost_its_disk_is_not_eligible(self) -> None:
        state = partition(1, 2, 3, isr=(1,), elr=(2, 3), leader=1, offline=(3,))
        assert after(state, rules(1)).elr == ids(2)


class TestEpochs:
    def test_a_smaller_isr_under_the_same_leader_is_no_new_leader_epoch(self) -> None:
        new = after(partition(1, 2, 3), rules(1, 2))
        assert (new.leader_epoch, new.partition_epoch) == (0, 1)

    def test_no_leader_is_a_new_one(self) -> None:
        new = after(partition(1), rules())
        assert (new.leader, new.leader_epoch, new.partition_epoch) == (NO_BROKER, 1, 1)

    def test_nothing_changed_is_no_record(self) -> None:
        assert difference(KEY, partition(1, 2), partition(1, 2)) is None

    def test_fewer_replicas_are_a_new_leader_epoch(self) -> None:
        record = difference(KEY, partition(1, 2, 3), partition(1, 2))
        assert record == PartitionChangeRecord(
            topic_id=TOPIC, partition_id=PartitionId(0), replicas=ids(1, 2), isr=ids(1, 2), leader=BrokerId(1)
        )


class TestReassignment:
    """KIP-455: over when all new replicas are in sync."""

    moving = partition(4, 5, 1, 2, adding=(4, 5), removing=(1, 2), isr=(1, 2), leader=1)

    def test_not_before_all_have_caught_up(self) -> None:
        new = after(self.moving, rules(1, 2, 4, 5), isr=ids(1, 2, 4))
        assert (new.replicas, new.isr, new.leader) == (ids(4, 5, 1, 2), ids(4, 1, 2), 1)

    def test_over(self) -> None:
        new = after(self.moving, rules(1, 2, 4, 5), isr=ids(1, 2, 4, 5))
        assert (new.replicas, new.isr, new.adding, new.removing) == (ids(4, 5), ids(4, 5), (), ())
        assert (new.leader, new.leader_epoch, new.partition_epoch) == (4, 1, 1)

    def test_never_below_what_committing_needs(self) -> None:
        """1, 2, 3 -> 3, 4: with 3 lagging, 4 alone would be in sync."""
        state = partition(3, 4, 1, 2, adding=(4,), removing=(1, 2), isr=(1, 2), leader=1)
        new = after(state, rules(1, 2, 3, 4, min_isr=2), isr=ids(1, 2, 4))
        assert new.removing == ids(1, 2)
        new = after(new, rules(1, 2, 3, 4, min_isr=2), isr=ids(1, 2, 4, 3))
        assert (new.replicas, new.isr) == (ids(3, 4), ids(3, 4))

    def test_but_not_stuck_where_there_were_too_few_anyway(self) -> None:
        state = partition(3, 4, 1, adding=(4,), removing=(1,), isr=(4,), leader=4)
        new = after(state, rules(4, min_isr=2))
        assert (new.replicas, new.isr, new.elr) == (ids(3, 4), ids(4), ())

    def test_who_goes_is_not_eligible_any_more(self) -> None:
        state = partition(3, 1, 2, adding=(3,), removing=(2,), isr=(1,), elr=(2,), leader=1, offline=(2,))
        new = after(state, rules(1, 3), isr=ids(1, 3))
        assert (new.replicas, new.elr, new.offline) == (ids(3, 1), (), ())


class TestMinIsr:
    """SEMANTICS 5: effective min ISR = min(min.insync.replicas, RF); by default 2 of 3 or more replicas, else 1."""

    @pytest.mark.parametrize(
        ("configured", "replicas", "adding", "effective"),
        [
            (None, (1,), (), 1),
            (None, (1, 2), (), 1),
            (None, (1, 2, 3), (), 2),
            (None, (1, 2, 3, 4, 5), (), 2),
            (2, (1,), (), 1),
            (3, (1, 2), (), 2),
            (1, (1, 2, 3), (), 1),
            (None, (1, 2, 3), (2, 3), 1),
            (2, (1, 2, 3), (2, 3), 1),
        ],
    )
    def test_effective(
        self, configured: int | None, replicas: tuple[int, ...], adding: tuple[int, ...], effective: int
    ) -> None:
        assert effective_min_isr(configured, partition(*replicas, adding=adding)) == effective


# --- any state, any occasion

BROKERS = st.integers(1, 5)
SUBSETS = st.sets(BROKERS)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    replicas = draw(st.lists(BROKERS, min_size=1, max_size=5, unique=True))
    isr = [b for b in replicas if b in draw(SUBSETS)]
    elr = [b for b in replicas if b in draw(SUBSETS) and b not in isr]
    known = [b for b in replicas if b in draw(SUBSETS) and b not in isr and b not in elr]
    adding: list[int] = []
    removing: list[int] = []
    if draw(st.booleans()) and len(replicas) > 1:
        split = draw(st.integers(1, len(replicas) - 1))
        removing = replicas[split:]
        adding = [b for b in replicas[:split] if draw(st.booleans())]
        if not removing or len(adding) + len(removing) > len(replicas) or adding == replicas[:split]:
            adding = adding[:-1]
    leader = draw(st.sampled_from([NO_BROKER, *isr])) if isr else NO_BROKER
    last = leader if leader != NO_BROKER else draw(st.sampled_from([NO_BROKER, 1, 2, 3, 4, 5]))
    return Partition(
        replicas=ids(*replicas),
        isr=ids(*isr),
        elr=ids(*elr),
        last_known_elr=ids(*known),
        adding=ids(*adding),
        removing=ids(*removing),
        offline=ids(*[b for b in replicas if b in draw(SUBSETS)]) if draw(st.booleans()) else (),
        leader=BrokerId(leader),
        last_leader=BrokerId(last),
        leader_epoch=LeaderEpoch(draw(st.integers(0, 5))),
        partition_epoch=PartitionEpoch(draw(st.integers(0, 5))),
    )


REMOVED_REPLICA_PROVES = Partition(
    replicas=ids(1, 2),
    isr=(),
    elr=(),
    last_known_elr=ids(2),
    adding=(),
    removing=ids(2),
    offline=(),
    leader=NO_BROKER,
    last_leader=NO_BROKER,
    leader_epoch=LeaderEpoch(0),
    partition_epoch=PartitionEpoch(0),
)


@example(REMOVED_REPLICA_PROVES, {1, 2}, None, False, set(), False, {1: (0, 0), 2: (0, 0)})
@settings(max_examples=500)
@given(
    partitions(),
    SUBSETS,
    st.sampled_from([None, 1, 2, 3]),
    st.booleans(),
    st.sets(BROKERS, max_size=1),
    st.booleans(),
    st.dictionaries(BROKERS, st.tuples(st.integers(0, 3), st.integers(0, 9))),
)
def test_the_rules_hold_for_any_partition(
    old: Partition,
    active: set[int],
    min_isr: int | None,
    unclean: bool,
    stopped: set[int],
    prefer: bool,
    logs: dict[int, tuple[int, int]],
) -> None:
    topic_rules = rules(*active, min_isr=min_isr, unclean=unclean)
    said = tuple(replica_state(node, epoch, end) for node, (epoch, end) in logs.items())
    occasion = Occasion(unclean_stops=ids(*stopped), prefer_first=prefer, states=said)
    record = revise(KEY, old, topic_rules, occasion)
    new = old if record is None else changed(old, record)
    check_partition(new)
    fit = [b for b in new.replicas if b in active and b not in stopped and b not in new.offline]
    eligible = {*old.isr, *old.elr} - stopped - set(old.offline)
    # who is in sync was so, or leads now
    assert set(new.isr) <= set(fit)
    assert all(b in old.isr or b == new.leader for b in new.isr)
    # the order of the election
    in_sync = [b for b in new.replicas if b in old.isr and b in fit]
    if in_sync:
        assert new.isr == tuple(in_sync)
        assert new.leader in in_sync
        if old.leader in in_sync and not prefer:
            assert new.leader == old.leader
        elif prefer and new.replicas[0] in in_sync:
            assert new.leader == new.replicas[0]
        elif old.leader not in in_sync:
            assert new.leader == in_sync[0]
    elif new.leader != NO_BROKER:
        assert new.isr == (new.leader,)
        alive_and_eligible = [b for b in old.replicas if b in eligible and b in active]
        if alive_and_eligible:
            assert new.leader == alive_and_eligible[0]
        else:
            last = not eligible.intersection(new.replicas) and new.leader == old.last_leader
            answered = {state.broker_id for state in said}
            assert last or new.leader in answered
            if not last:
                # of all previous replicas: a removed one may be what proves the log complete, and be dropped at once
                could = [b for b in old.replicas if b in active and b not in stopped and b not in old.offline]
                alive = [s for s in said if s.broker_id in could]
                known = [s for s in alive if s.broker_id in (*old.last_known_elr, old.last_leader)]
                assert known or unclean
                longest = max(s.length for s in known or alive)
                assert longest == next(s.length for s in alive if s.broker_id == new.leader)
    # eligible
    if len(new.isr) >= effective_min_isr(min_isr, new):
        assert new.elr == ()
    else:
        assert set(new.elr) == eligible.intersection(new.replicas) - set(new.isr)
    # epochs
    if record is not None:
        assert new.partition_epoch == old.partition_epoch + 1
        bumped = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
        assert new.leader_epoch == old.leader_epoch + bumped
    # it is a fixed point
    assert revise(KEY, new, topic_rules, occasion) is None
    assert revised(new, new, topic_rules, occasion).leader == new.leader
