"""Operators of the metadata quorum: voters are added and removed, lost votes are restored, while faults strike.

    spare node --add-voter--> voter --remove-voter--> spare node        three voters or four, one change at a time
    voter --its metadata directory is lost (a fault of the plan)--> without a vote --restored--> voter

With three nodes there is no spare one, and nothing is changed: two voters would not survive a fault. The lock
`Nodes.voters_change` keeps a loss and a change apart: together they may take away a majority of the votes, which no one
survives. In half of the rounds the quorum restores a lost vote by itself, in the others the operator does.

What must hold is read from the nodes' logs, where it stands whatever happens to those who ask: one leader of the
quorum for each term (I13). In the end every node must name the same voters and controller, and each voter must vote.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from streamlog.client import AsyncAdmin
from streamlog.client.admin.values import ClusterDescription
from streamlog.errors import StreamlogError
from tests.nemesis.nodes import SPARE, VOTERS, Node, Nodes

GAP_S: Final = (2.0, 8.0)
LOOK_S: Final = 0.3
GIVE_UP_S: Final = 120.0
VOTES_AGAIN: Final = "this node votes on the metadata again"
_LED: Final = re.compile(r"node \d+: the quorum's leader is (\d+), term (\d+)")
_ACTIVE: Final = re.compile(r"node (\d+): is the active controller, term (\d+)")
_SETTINGS: Final = {"request.timeout.ms": "5000", "default.api.timeout.ms": "15000"}


class VoterChange(Struct, frozen=True, kw_only=True):
    node_id: int
    add: bool


def restores_votes(seed: int) -> bool:
    """Whether the quorum of this round restores lost votes by itself."""
    return random.Random(f"nemesis/{seed}/restore").random() < 0.5


def next_change(rng: random.Random, nodes: Collection[int], voters: Collection[int]) -> VoterChange | None:
    """None: there is no node to spare."""
    spare = sorted(set(nodes) - set(voters))
    if len(voters) > VOTERS:  # three are left, and one of them may fail
        return VoterChange(node_id=rng.choice(sorted(voters)), add=False)
    return VoterChange(node_id=rng.choice(spare), add=True) if spare else None


class Membership:
    def __init__(
        self,
        nodes: Nodes,
        *,
        seed: int,
        now: Callable[[], float],
        note: Callable[[str, StreamlogError], None],
        wrong: Callable[[str, str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        self.stopping = False
        self._nodes = nodes
        self._rng = random.Random(f"nemesis/{seed}/membership")
        self._by_hand = not restores_votes(seed)
        self._now = now
        self._note = note
        self._wrong = wrong

    async def run(self, admin: AsyncAdmin) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            async with self._nodes.voters_change:
                try:
                    await self._change(admin)
                except StreamlogError as error:
                    self._note("admin voters", error)

    async def _change(self, admin: AsyncAdmin) -> None:
        voters = (await admin.describe_cluster()).voters
        if any(voter.without_vote for voter in voters):
            return
        able = [node.node_id for node in self._nodes.all if node.node_id <= SPARE]
        change = next_change(self._rng, able, [int(voter.node_id) for voter in voters])
        if change is None:
            return
        if change.add:
            await admin.add_voter(change.node_id)
        else:
            await admin.remove_voter(change.node_id)
        self.done["add voter" if change.add else "remove voter"] += 1

    # -- a lost vote

    async def is_voter(self, node: Node) -> bool | None:
        """None: no node answers."""
        until = self._now() + GIVE_UP_S
        async with self._admin() as admin:
            while self._now() < until:
                try:
                    voters = (await admin.describe_cluster()).voters
                except StreamlogError:
                    await asyncio.sleep(LOOK_S)
                else:
                    return any(voter.node_id == node.node_id for voter in voters)
        return None

    async def until_votes(self, node: Node, log_position: int) -> None:
        """Until the node has logged, after this position, that it votes again."""
        until = self._now() + GIVE_UP_S
        async with self._admin() as admin:
            while VOTES_AGAIN not in node.log_after(log_position):
                if self._now() > until:
                    self._wrong("quorum", f"node {node.node_id} still has no vote, {GIVE_UP_S:g} s after its start")
                    return
                if self._by_hand:
                    try:
                        await self._restore(admin, node)
                    except StreamlogError as error:
                        self._note("admin restore voter", error)
                await asyncio.sleep(LOOK_S)
        self.done["restored vote"] += 1

    async def _restore(self, admin: AsyncAdmin, node: Node) -> None:
        """As `streamlogctl cluster restore-voter`."""
        for voter in (await admin.describe_cluster()).voters:
            if voter.node_id == node.node_id and voter.without_vote:
                await admin.add_voter(node.node_id, replaced_node_id=node.node_id)

    # -- in the end

    async def check(self, within_s: float) -> None:
        until = self._now() + within_s
        while True:
            problem = await self._problem()
            if not problem:
                return
            if self._now() > until:
                self._wrong("quorum", f"{within_s:g} s after all was healed: {problem}")
                return
            await asyncio.sleep(LOOK_S)

    async def _problem(self) -> str:
        seen: dict[int, ClusterDescription] = {}
        for node in self._nodes.all:
            try:
                async with self._admin(node.address) as admin:
                    seen[node.node_id] = await admin.describe_cluster()
            except StreamlogError as error:
                return f"node {node.node_id} answers {error!r}"
        return disagreement(
            {
                node: (found.controller, tuple((int(v.node_id), v.without_vote) for v in found.voters))
                for node, found in seen.items()
            }
        )

    def _admin(self, servers: str = "") -> AsyncAdmin:
        return AsyncAdmin({"bootstrap.servers": servers or self._nodes.bootstrap_servers, **_SETTINGS})


def disagreement(seen: Mapping[int, tuple[int | None, tuple[tuple[int, bool], ...]]]) -> str:
    """What is wrong with the quorum as each node describes it: its controller, and its voters with `without_vote`."""
    controllers = {node: controller for node, (controller, _) in seen.items()}
    if None in controllers.values() or len(set(controllers.values())) != 1:
        return f"the controller is, by node, {controllers}"
    voters = {node: tuple(voter for voter, _ in known) for node, (_, known) in seen.items()}
    if len(set(voters.values())) != 1 or any(len(known) < VOTERS for known in voters.values()):
        return f"the voters are, by node, {voters}"
    lost = sorted({voter for _, known in seen.values() for voter, without_vote in known if without_vote})
    return f"voters {lost} have no vote" if lost else ""


def two_leaders(logs: Iterable[str]) -> Iterator[str]:
    """I13, by what the nodes have logged: terms that more than one node led, or was said to lead."""
    leaders: dict[int, set[int]] = defaultdict(set)
    for text in logs:
        for pattern in (_LED, _ACTIVE):
            for node, term in pattern.findall(text):
                if int(term):  # an observer knows no term
                    leaders[int(term)].add(int(node))
    for term, nodes in sorted(leaders.items()):
        if len(nodes) > 1:
            yield f"the quorum's leader in term {term} was each of {sorted(nodes)}"
