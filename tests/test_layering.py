"""Layers point one way (ARCHITECTURE.md, "Layers"): a walk over the imports of every module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "streamlog"

# What each package of streamlog may import of streamlog, besides itself.
ALLOWED = {
    "model": set(),
    "errors": set(),
    "release": set(),
    "printable": set(),
    "metrics": set(),
    "config": {"model", "errors"},
    "ports": {"errors"},
    "records": {"model", "errors"},
    "storage": {"model", "metrics", "errors", "ports", "records"},
    "raft": {"model", "errors", "ports"},
    "metadata": {"model", "errors", "config", "raft"},
    "sim": {"model", "errors", "ports"},
    "groups": {"model", "errors", "records"},
    "transactions": {"model", "errors", "records"},
    "replication": {"model", "errors", "ports", "records"},
    "api": {"printable", "model", "errors", "config", "ports", "records", "metadata", "groups", "transactions"},
    "broker": {"model", "metrics", "errors", "ports", "config", "records", "storage", "metadata", "replication", "api"},
    "coordinator": {
        "model",
        "errors",
        "ports",
        "config",
        "records",
        "storage",
        "metadata",
        "broker",
        "groups",
        "transactions",
    },
    "client": {"model", "errors", "ports", "config", "records", "api"},
    "services": {
        "model",
        "metrics",
        "errors",
        "config",
        "ports",
        "records",
        "storage",
        "metadata",
        "raft",
        "replication",
        "api",
        "broker",
        "controller",
        "client",
        "coordinator",
        "groups",
        "transactions",
    },
    "controller": {"model", "errors", "config", "ports", "raft", "metadata", "api"},
    "node": {
        "model",
        "metrics",
        "errors",
        "release",
        "config",
        "ports",
        "records",
        "storage",
        "raft",
        "metadata",
        "replication",
        "api",
        "broker",
        "controller",
        "client",
        "coordinator",
        "groups",
        "transactions",
        "services",
    },
    "daemon": {"printable", "model", "metrics", "errors", "release", "config", "ports", "node"},
    "spark": {"model", "errors", "config", "ports", "records", "client"},
    "monitor": {"model", "errors", "client"},
    "console": {"model", "errors", "config", "client", "monitor"},
    "cli": {
        "printable",
        "model",
        "console",
        "monitor",
        "errors",
        "config",
        "ports",
        "records",
        "storage",
        "groups",
        "client",
        "daemon",
        "spark",
    },
    "pytest_plugin": {"model", "errors", "config", "ports", "metadata", "client", "node", "daemon"},
}

# Third-party and system modules that only some places may see. Keys: module; values: where.
RESTRICTED = {
    "grpc": {"ports/grpc_adapter"},
    "google": {
        "raft/protocol/wire.py",
        "raft/pb",
        "metadata/convert.py",
        "metadata/pb",
        "api/bounds.py",
        "api/calls.py",
        "api/convert",
        "api/errors.py",
        "api/fetched.py",
        "api/health.py",
        "api/pb",
        "api/reflection.py",
        "api/service.py",
    },
    "grpc_health": {"api/health.py"},
    "grpc_reflection": {"api/reflection.py"},
    "pysyncobj": {"raft/core/library.py"},
    "re2": {"coordinator/topics.py"},
    "pickle": set(),
    "prometheus_client": {"daemon/http"},
    "uvicorn": {"console", "daemon/http"},
    "nicegui": {"console"},
    "sqlalchemy": {"console/history.py"},
    "fastapi": {"console/server.py"},
    "uvloop": {"ports/system.py"},
    "pyspark": {"spark"},
    "pyarrow": {"spark"},
    "click": {"cli"},
    "rich": {"cli"},
}

# Node code meets the world through ports alone (streamlog/ports/__init__.py).
WORLD = {
    "concurrent",
    "datetime",
    "io",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
    "weakref",
}
NODE_CODE = {
    "config",
    "records",
    "storage",
    "raft",
    "metadata",
    "groups",
    "replication",
    "api",
    "client",
    "coordinator",
    "services",
    "controller",
    "node",
    "broker",
}


# The synchronous face of the client has a thread of its own, and may see the world.
FRONTS = {"client/connection/sync_loop.py", "client/producer/sync_producer.py"}


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if not p.name.endswith("_pb2.py"))


def imported(path: Path) -> list[str]:
    """Dotted names that the module imports, absolute."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names += [f"{module}.{alias.name}" if module == "streamlog" else module for alias in node.names]
    return names


def place(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = place(path)
    if here == "__init__":
        return
    assert here in ALLOWED, f"a new package: say in ALLOWED what {here} may import"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "streamlog" and len(parts) > 1:
            assert parts[1] == here or parts[1] in ALLOWED[here], f"{here} must not import {name}"
        elif parts[0] in RESTRICTED:
            at = str(path.relative_to(ROOT))
            assert any(at.startswith(where) for where in RESTRICTED[parts[0]]), f"{at} must not import {name}"


@pytest.mark.parametrize(
    "path", [p for p in modules() if place(p) in NODE_CODE], ids=lambda p: str(p.relative_to(ROOT))
)
def test_node_code_sees_the_world_through_ports(path: Path) -> None:
    if str(path.relative_to(ROOT)) in FRONTS:
        return
    for name in imported(path):
        assert name.split(".")[0] not in WORLD, f"{path.relative_to(ROOT)} imports {name}"
