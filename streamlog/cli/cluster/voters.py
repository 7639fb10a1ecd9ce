"""`streamlogctl cluster quorum`, and the commands that add, restore and remove its voters."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import click
from msgspec.structs import replace

from streamlog.cli.common.answering import no_quorum, not_answering, voter_addresses
from streamlog.cli.common.failures import FAILED
from streamlog.cli.common.nouns import node_argument
from streamlog.cli.common.output import Output, Row, cell_text, output_option, say, show_facts, show_json, show_rows
from streamlog.cli.common.session import open_admin, with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ClusterDescription, VoterDescription
from streamlog.errors import StreamlogError, VoterNotFoundError
from streamlog.model import INT32_MAX, BrokerId

_VOTER_COLUMNS: Final = ("node", "address", "role", "answers", "match_index", "lag")


@click.command
@output_option
@cluster_options
def quorum(target: Target, output: Output) -> None:
    """Show the voters of the metadata quorum, whether each answers this machine, and how far it is behind.

    Without a quorum, that is without a majority of the voters, records are written and read where partitions have
    leaders, and nothing can be created, altered or elected. The exit code is 1 then, as that of all that needs it.

    \b
    Example:
      streamlogctl cluster quorum
    """
    found = with_admin(target, lambda admin: _described_by_its_leader(target, admin), needs_quorum=False)
    addresses = voter_addresses(found)
    silent = not_answering(addresses)
    by_leader = any(voter.match_index is not None for voter in found.voters)
    lost = "" if by_leader else no_quorum(addresses, silent)
    facts: dict[str, str | int | None] = {
        "leader": None if lost else found.controller,  # a node without the quorum names the last one that it knew
        "term": found.quorum_term,
        "commit_index": found.commit_index,
    }
    rows = [
        _voter_row(found, voter, leader=facts["leader"], answers=address not in silent)
        for voter, address in zip(found.voters, addresses, strict=True)
    ]
    if output is Output.JSON:
        show_json(facts | {"voters": rows})
    else:
        show_facts(output, facts)
        say()
        show_rows(output, rows, columns=_VOTER_COLUMNS)
        for voter in found.voters:
            if voter.without_vote:
                say(
                    f"Node {voter.node_id} returned without its metadata directory, and has no vote. With "
                    "controller.quorum.voter.restore.enable it gets it back within seconds; otherwise run "
                    f"'streamlogctl cluster restore-voter {voter.node_id}'.",
                    err=True,
                )
    if lost:
        say(f"{lost.partition(' (')[0]} this machine: start the nodes that do not.", err=True)
        sys.exit(FAILED)


async def _described_by_its_leader(target: Target, admin: AsyncAdmin) -> ClusterDescription:
    """Only the quorum's leader knows the voters' positions; where it does not answer, by the node that did."""
    found = await admin.describe_cluster()
    leader = next((node for node in found.nodes if node.node_id == found.controller), None)
    if leader is None or any(voter.match_index is not None for voter in found.voters):
        return found
    try:
        async with open_admin(replace(target, servers=(leader.address,))) as there:
            return await there.describe_cluster()
    except StreamlogError:
        return found


def _voter_row(found: ClusterDescription, voter: VoterDescription, *, leader: object, answers: bool) -> Row:
    known = voter.match_index is not None
    return {
        "node": voter.node_id,
        "address": voter.address,
        "role": _role(leader, voter),
        "answers": answers,
        "match_index": voter.match_index if known else "unknown",
        "lag": max(0, found.commit_index - (voter.match_index or 0)) if known else "unknown",
    }


def _role(leader: object, voter: VoterDescription) -> str:
    if voter.without_vote:
        return "no vote"
    return "leader" if voter.node_id == leader else "voter"


@click.command(name="add-voter")
@click.option("--address", metavar="HOST:PORT", default="", help="The node's address; default: the registered one.")
@click.option("--replace", "replaced", type=click.IntRange(0, INT32_MAX), help="A permanently lost voter.")
@node_argument
@cluster_options
def add_voter(target: Target, node_id: int, *, address: str, replaced: int | None) -> None:
    """Add NODE to the voters of the metadata quorum.

    It must run with its own id and all current voters in controller.quorum.voters: so it replicates the quorum's log,
    without a vote, until it is added.

    \b
    Examples:
      streamlogctl cluster add-voter 4
      streamlogctl cluster add-voter 4 --replace 2
    """

    async def work(admin: AsyncAdmin) -> tuple[VoterDescription, ...]:
        known = {node.node_id: node.address for node in (await admin.describe_cluster()).nodes}
        where = address or known.get(BrokerId(node_id))
        silent = await asyncio.to_thread(not_answering, [where] if where else [])
        if silent:
            text = f"Node {node_id} does not answer at {where} from this machine"
            say(f"{text}; waiting until it does, and has caught up.", err=True)
        return await admin.add_voter(node_id, address=address, replaced_node_id=replaced)

    voters = with_admin(target, work)
    say(f"Node {node_id} is a voter. Voters: {_voter_ids(voters)}.")


@click.command(name="restore-voter")
@node_argument
@cluster_options
def restore_voter(target: Target, node_id: int) -> None:
    """Restore the vote of NODE, a voter that returned without its metadata directory.

    Its new directory replaces the lost one once it has caught up and the other voters agree. The quorum does this
    automatically with controller.quorum.voter.restore.enable.

    \b
    Example:
      streamlogctl cluster restore-voter 2
    """

    async def work(admin: AsyncAdmin) -> tuple[VoterDescription, ...] | None:
        voters = (await _described_by_its_leader(target, admin)).voters
        known = next((voter for voter in voters if voter.node_id == node_id), None)
        if known is None:
            raise VoterNotFoundError(
                f"node {node_id} is not a voter; the voters are {_voter_ids(voters)}", voter=node_id
            )
        if not known.without_vote and known.match_index is not None:
            return None
        return await admin.add_voter(node_id, replaced_node_id=node_id)

    voters = with_admin(target, work)
    if voters is None:
        say(f"Node {node_id} has its vote.")
    else:
        say(f"Node {node_id} has its vote again. Voters: {_voter_ids(voters)}.")


@click.command(name="remove-voter")
@node_argument
@cluster_options
def remove_voter(target: Target, node_id: int) -> None:
    """Remove NODE from the voters. It continues as a broker.

    \b
    Example:
      streamlogctl cluster remove-voter 2
    """
    voters = with_admin(target, lambda admin: admin.remove_voter(node_id))
    say(f"Node {node_id} is not a voter. Voters: {_voter_ids(voters)}.")


def _voter_ids(voters: tuple[VoterDescription, ...]) -> str:
    return cell_text([voter.node_id for voter in voters])
