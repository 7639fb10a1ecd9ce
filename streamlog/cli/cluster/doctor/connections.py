"""How a cluster's nodes are reached from here: each advertised address, and the certificates on both sides."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from streamlog.cli.common.answering import no_quorum, not_answering, voter_addresses
from streamlog.cli.common.session import open_admin
from streamlog.cli.common.target import UNREACHABLE_MS, Target
from streamlog.client.admin.values import ClusterDescription, NodeDescription, NodeState
from streamlog.errors import StreamlogError
from streamlog.monitor import ClusterState, HealthFinding, Severity, findings_of
from streamlog.tls.described import described, described_pem

EXPIRY_WARNING: Final = datetime.timedelta(days=30)
ANSWER_MS: Final = 10_000
"""How long a node may take to answer: one that hangs accepts connections."""
_CLIENT_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")


async def cluster_findings(target: Target, state: ClusterState) -> list[HealthFinding]:
    """Of the cluster's health, and of how its nodes answer from here: a node that does not answer is one finding.

    Each node that the metadata calls active is called. One that has failed is called active until its session times
    out; without a quorum for as long as that is missing.
    """
    cluster = state.cluster
    if cluster is None:
        return findings_of(state)
    active = [node for node in cluster.nodes if node.state is NodeState.ACTIVE]
    answers = await asyncio.gather(*(_answer_of(target, node) for node in active))
    wrong = {node.node_id: found for node, found in zip(active, answers, strict=True) if found is not None}
    found = [*findings_of(state, wrong.keys()), *wrong.values()]
    if wrong and all(voter.match_index is None for voter in cluster.voters):  # not from the quorum's leader
        voters = voter_addresses(cluster)
        silent = await asyncio.to_thread(not_answering, voters)
        if no_quorum(voters, silent):
            found.append(_too_few_voters(len(voters) - sum(one in silent for one in voters), len(voters)))
    return found


async def connection_findings(target: Target, cluster: ClusterDescription | None) -> list[HealthFinding]:
    """Of the client's certificates, and of those that the nodes show."""
    found = [*file_findings(target.from_file)]
    if cluster is not None and target.from_file.get("security.protocol", "").upper() in ("SSL", "SASL_SSL"):
        active = [node for node in cluster.nodes if node.state is NodeState.ACTIVE]
        for node, expires in zip(active, await asyncio.gather(*map(_certificate_of, active)), strict=True):
            found += certificate_findings(f"node {node.node_id}", expires, _now())
    return found


def _too_few_voters(answering: int, count: int) -> HealthFinding:
    return HealthFinding(
        severity=Severity.CRITICAL,
        subject="quorum",
        problem=f"Of the {count} voters of the metadata quorum {answering} {'answers' if answering == 1 else 'answer'} "
        "this machine.",
        cause="If the others are down there is no quorum: nothing can be created, altered or elected, and the states "
        "shown here may be out of date.",
        remedy="Start the voters that are down: streamlogctl cluster quorum.",
    )


async def _answer_of(target: Target, node: NodeDescription) -> HealthFinding | None:
    """None: it answers at its address, and no other node does."""
    timeout_ms = min(target.request_timeout_ms, ANSWER_MS)
    alone = replace(target, servers=(node.address,), request_timeout_ms=timeout_ms)
    try:
        async with open_admin(alone) as admin:
            answered = (await admin.describe_node()).node_id
    except StreamlogError as error:
        return HealthFinding(
            severity=Severity.CRITICAL,
            subject=f"node {node.node_id}",
            problem=f"Node {node.node_id} does not answer at {node.address}, the address that it gives to clients.",
            cause=f"It is down, hangs, or cannot be reached from this machine ({error.message}).",
            remedy="Start it if it is down; else set its advertised.listeners to an address that clients reach, or "
            "open its port in the firewall.",
        )
    if answered == node.node_id:
        return None
    return HealthFinding(
        severity=Severity.CRITICAL,
        subject=f"node {node.node_id}",
        problem=f"At {node.address}, the address of node {node.node_id}, node {answered} answers.",
        cause="Two nodes advertise one address, or a proxy or name leads to another node.",
        remedy="Give each node an address of its own in advertised.listeners.",
    )


async def _certificate_of(node: NodeDescription) -> datetime.datetime | None:
    """When the certificate that it shows expires; None: it showed none that can be read."""
    try:
        pem = await asyncio.to_thread(ssl.get_server_certificate, (node.host, node.port), timeout=UNREACHABLE_MS / 1000)
        return described_pem(pem.encode(), node.address)[0].expires
    except (OSError, StreamlogError):
        return None


def file_findings(settings: Mapping[str, str]) -> Iterator[HealthFinding]:
    """Of the certificates that the client's settings name."""
    for name in _CLIENT_FILES:
        path = settings.get(name)
        if not path:
            continue
        try:
            certificates = described(Path(path))
        except (StreamlogError, OSError) as error:
            yield HealthFinding(
                severity=Severity.CRITICAL,
                subject=path,
                problem=f"{name}: {path} cannot be read as certificates.",
                cause=f"{error}.",
                remedy="Give a PEM file with certificates: streamlogctl security describe shows what is in one.",
            )
            continue
        expires = min((one.expires for one in certificates), default=None)
        yield from certificate_findings(f"{name} ({path})", expires, _now())


def certificate_findings(
    subject: str, expires: datetime.datetime | None, now: datetime.datetime
) -> Iterator[HealthFinding]:
    if expires is None or expires - now > EXPIRY_WARNING:
        return
    expired = expires <= now
    yield HealthFinding(
        severity=Severity.CRITICAL if expired else Severity.WARNING,
        subject=subject,
        problem=f"The certificate of {subject} {'expired' if expired else 'expires'} on {expires:%Y-%m-%d %H:%M} UTC.",
        cause="Certificates are valid for a limited time; without a valid one no new connection is made.",
        remedy="Renew it: streamlogctl security node or streamlogctl security client, with --renew.",
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
