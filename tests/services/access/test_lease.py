"""How long a node decides by its copy of the lists: by the lease alone, and at the gate."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.errors import BrokerNotAvailableError
from streamlog.model import RaftIndex
from streamlog.services.access.access_lease import PENDING_MAX, AccessLease

LEASE_S = 9.0


class Node:
    """One that decides, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.image = SimpleNamespace(index=0)
        view: Any = SimpleNamespace(image=self.image)
        self.lease = AccessLease(lambda: self.now_s, view, lambda: LEASE_S)

    @property
    def decides(self) -> bool:
        return self.lease.refusal() is None


def test_a_node_that_no_controller_has_answered_does_not_decide() -> None:
    node = Node()
    assert isinstance(node.lease.refusal(), BrokerNotAvailableError)


def test_the_lease_begins_when_the_heartbeat_was_sent() -> None:
    node = Node()
    node.now_s = 3.0
    node.lease.answered(1.0, RaftIndex(0))
    assert node.lease.left_s() == 7.0
    node.now_s = 10.0
    assert not node.decides
    node.lease.answered(9.5, RaftIndex(0))
    assert node.decides


def test_metadata_that_is_not_applied_renews_nothing() -> None:
    node = Node()
    node.lease.answered(1.0, RaftIndex(0))
    node.lease.answered(8.0, RaftIndex(5))
    node.now_s = 10.0
    assert not node.decides
    node.image.index = 5
    assert node.lease.left_s() == 7.0


def test_what_is_kept_of_answers_is_bounded() -> None:
    node = Node()
    for number in range(10 * PENDING_MAX):
        node.lease.answered(float(number), RaftIndex(1))
    assert len(node.lease._pending) == PENDING_MAX
    node.now_s, node.image.index = 10.0 * PENDING_MAX, 1
    assert node.decides


@pytest.mark.parametrize("seed", range(200))
def test_no_right_outlives_its_revocation_by_more_than_the_lease(seed: int) -> None:
    """Heartbeats and metadata are lost and late at random; each change of the lists is an entry of the log."""
    chance = random.Random(seed)
    node = Node()
    changed_s = [0.0]  # of each index: when the controller had applied it
    answers: list[tuple[float, float, int]] = []  # arrives, was sent, index
    decided = cut_off_until_s = 0.0
    for _ in range(400):
        node.now_s += chance.choice((0.05, 0.5, 2.0))
        if chance.random() < 0.3:
            changed_s.append(node.now_s)
        if chance.random() < 0.02:
            cut_off_until_s = node.now_s + chance.uniform(1.0, 40.0)
        if node.now_s >= cut_off_until_s:
            if chance.random() < 0.5:
                sent_s = node.now_s - chance.uniform(0.0, 3.0)
                answers.append((node.now_s + chance.uniform(0.0, 3.0), sent_s, len(changed_s) - 1))
            if chance.random() < 0.4:
                node.image.index = chance.randint(node.image.index, len(changed_s) - 1)
        for answer in sorted(one for one in answers if one[0] <= node.now_s):
            answers.remove(answer)
            node.lease.answered(answer[1], RaftIndex(answer[2]))
        if node.decides:
            decided += 1
            missing = changed_s[node.image.index + 1 :]
            assert not missing or node.now_s - missing[0] <= LEASE_S
    assert decided > 50
