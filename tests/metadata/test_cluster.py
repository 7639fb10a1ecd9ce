"""The first records, the feature level, producer ids, and the table of commands."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

import streamlog.metadata
from streamlog.errors import FeatureUpdateFailedError, InvalidRequestError, StaleBrokerEpochError
from streamlog.metadata.cluster import (
    PRODUCER_ID_BLOCK,
    AllocateProducerIds,
    Bootstrap,
    UpdateMetadataVersion,
)
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import BrokerRecord, MetadataVersion, MetadataVersionRecord
from streamlog.model import BrokerEpoch, BrokerId
from tests.metadata.rig import CLUSTER, Rig


def test_a_cluster_is_born_once() -> None:
    rig = Rig()
    assert (rig.image.cluster_id, rig.image.metadata_version) == (CLUSTER, METADATA_VERSION_MAX)
    before = rig.image
    assert rig.do(Bootstrap(cluster_id="second")).cluster_id == CLUSTER
    assert rig.image is before


@pytest.mark.parametrize("cluster_id", ["", "c" * 65])
def test_a_cluster_id_is_bounded(cluster_id: str) -> None:
    rig = Rig()
    rig.machine = type(rig.machine)()
    with pytest.raises(InvalidRequestError):
        rig.do(Bootstrap(cluster_id=cluster_id))


class TestMetadataVersion:
    """A level is raised when every node supports it, and never lowered."""

    def test_the_same_level_is_no_record(self) -> None:
        rig = Rig()
        before = rig.image
        assert rig.do(UpdateMetadataVersion(level=rig.image.metadata_version)) == rig.image.metadata_version
        assert rig.image is before

    def test_down(self) -> None:
        with pytest.raises(FeatureUpdateFailedError, match="cannot be lowered"):
            Rig().do(UpdateMetadataVersion(level=MetadataVersion(0)))

    def test_beyond_this_controller(self) -> None:
        with pytest.raises(FeatureUpdateFailedError, match=f"this controller up to {METADATA_VERSION_MAX}"):
            Rig().do(UpdateMetadataVersion(level=MetadataVersion(METADATA_VERSION_MAX + 1)))

    def test_up_where_all_nodes_can_follow(self) -> None:
        rig = Rig()
        rig.machine = type(rig.machine)()
        rig.index = 0
        old = UpdateMetadataVersion(level=METADATA_VERSION_MAX)
        assert rig.decide(old).records == (MetadataVersionRecord(level=METADATA_VERSION_MAX),)

    def test_not_while_a_node_is_behind_even_a_dead_one(self) -> None:
        rig = Rig()
        rig.register(7)
        behind = replace(
            rig.broker(7), metadata_version_min=MetadataVersion(0), metadata_version_max=MetadataVersion(0)
        )
        rig.commit([BrokerRecord(broker=behind)])
        level = MetadataVersion(METADATA_VERSION_MAX + 1)
        with pytest.raises(FeatureUpdateFailedError, match="node 7 supports up to 0") as refused:
            rig.do(UpdateMetadataVersion(level=level))
        assert refused.value.details["limit"] == 0


def test_blocks_of_producer_ids_never_overlap() -> None:
    rig = Rig()
    rig.start_all(1, 2)
    blocks = [rig.do(AllocateProducerIds(broker_id=BrokerId(b), broker_epoch=rig.epoch(b))) for b in (1, 2, 1, 1)]
    assert [block.first for block in blocks] == [0, 1_000, 2_000, 3_000]
    assert {block.count for block in blocks} == {PRODUCER_ID_BLOCK}
    with pytest.raises(StaleBrokerEpochError):
        rig.do(AllocateProducerIds(broker_id=BrokerId(1), broker_epoch=BrokerEpoch(1)))


def test_protobuf_ends_at_convert() -> None:
    """STYLE: of this package, only convert and the generated code see protobuf."""
    root = Path(streamlog.metadata.__file__).parent
    for path in sorted(root.glob("*.py")):
        imported = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
        ]
        sees = any(name.startswith(("google", "streamlog.metadata.pb")) for name in imported)
        assert sees == (path.name == "convert.py"), path.name
