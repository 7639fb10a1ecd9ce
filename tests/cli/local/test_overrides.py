"""Overrides of a cluster that is not started: what becomes of them in server.properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlog.cli.local.overrides import check_kept
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import InvalidConfigError


def test_a_port_0_of_http_listeners_is_chosen_once_so_that_it_can_be_shown(tmp_path: Path) -> None:
    given = {"http.listeners": "HTTPS://127.0.0.1:0, 127.0.0.1:0"}
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.create(2, 0, given, secure=True)
    urls = [node.http for node in cluster.nodes]
    assert len(set(urls)) == 2
    for url in urls:
        assert url.startswith("https://127.0.0.1:")
        assert not url.endswith(":0")
    for node in cluster.nodes:
        check_kept(node.properties, given)
        for other in ("127.0.0.1:0", "HTTPS://127.0.0.1:0, 127.0.0.1:1", ""):
            with pytest.raises(InvalidConfigError, match=r"http\.listeners=.* is not applied"):
                check_kept(node.properties, {"http.listeners": other})


@pytest.mark.parametrize("listeners", ["", "127.0.0.1:9644", "[::]:9644"])
def test_other_http_listeners_stay_as_they_are(tmp_path: Path, listeners: str) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.create(1, 0, {"http.listeners": listeners})
    (node,) = cluster.nodes
    assert f"http.listeners={listeners}\n" in node.properties.read_text()
    check_kept(node.properties, {"http.listeners": listeners})
