"""The files of a local cluster before its nodes are started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamlog.daemon import local_cluster
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.daemon.text_file import write_private


def test_a_first_start_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: str | os.PathLike[str], text: str) -> None:
        if Path(path).parent.name == "node-2":
            raise KeyboardInterrupt
        write_private(path, text)

    cluster = LocalCluster(tmp_path / "cluster")
    monkeypatch.setattr(local_cluster, "write_private", interrupted)
    with pytest.raises(KeyboardInterrupt), cluster.locked():
        cluster.create(3, 0, {}, secure=True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    cluster.create(1, 0, {}, secure=True)
    assert [node.node_id for node in cluster.nodes] == [1]
