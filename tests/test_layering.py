"""Layers point one way (ARCHITECTURE.md, "Layers"): a walk over the imports of every module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.layers import ALLOWED, FRONTS, NODE_CODE, ROOT

# Third-party and system modules that only some places may see. Keys: module; values: where.
RESTRICTED = {
    "grpc": set(),
    "hpack": {"ports/grpc_adapter"},
    "google": {
        "raft/protocol/wire.py",
        "raft/pb",
        "metadata/convert.py",
        "metadata/pb",
        "api/bounds.py",
        "api/calls.py",
        "api/convert",
        "api/entry_counts.py",
        "api/errors.py",
        "api/fetched.py",
        "api/health.py",
        "api/pb",
        "api/reflection.py",
        "api/request_resources.py",
        "api/responses.py",
        "api/service.py",
        "client/schemas/protobuf.py",  # a user's messages
        "console/decoding",  # messages of a user's schema
        "daemon/http/api",
    },
    "grpc_health": {"api/health.py"},
    "grpc_reflection": {"api/reflection.py"},
    "pysyncobj": {"raft/core/library.py"},
    "re2": {"coordinator/topics.py"},
    "pickle": set(),
    "prometheus_client": {"console/alarms/syncs.py", "daemon/http"},
    "uvicorn": {"console", "daemon/http"},
    "nicegui": {"console"},
    "fastavro": {"client/schemas", "console/decoding"},
    "httpx": {"client/schemas", "console/alarms"},
    "jsonschema": {"client/schemas"},
    "aiosmtplib": {"console/alarms/notify/senders.py"},
    "tomlkit": {"console/alarms/settings/rule_file.py"},
    "sqlalchemy": {
        "console/alarms/store.py",
        "console/access/audit.py",
        "console/access/database.py",
        "console/access/users.py",
        "console/collection/history.py",
        "console/collection/history_database.py",
        "console/database_waits.py",
    },
    "argon2": {"console/access/users.py"},
    "authlib": {"console/access/oidc.py"},
    "httpx2": {"console/access/oidc.py"},
    "fastapi": {"console/server.py"},
    "opentelemetry": {"client/tracing", "daemon/span_exporters.py", "daemon/tracing.py"},
    "uvloop": {"ports/system.py"},
    "pyspark": {"spark"},
    "pyarrow": {"spark"},
    "click": {"cli"},
    "cryptography": {"ports/grpc_adapter/tls", "tls"},
    "jwt": {"access/tokens.py", "client/connection/token_login.py"},
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


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_error_is_raised_where_a_part_of_a_group_is_caught(path: Path) -> None:
    """Before Python 3.11.4 it is wrapped in a group once more; `aio.group_tasks.unwrapped` has one way for all."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.TryStar):
            raised = [one for handler in node.handlers for one in ast.walk(handler) if isinstance(one, ast.Raise)]
            assert not raised, f"line {raised[0].lineno}"


NAMES_MAX = 18
"""Modules and folders in one folder: what one takes in at a glance."""


def test_a_folder_shows_few_names() -> None:
    shown = {
        folder: [path.name for path in folder.iterdir() if path.is_dir() or path.suffix == ".py"]
        for folder in {path.parent for path in modules()} - {ROOT}
        if folder.name != "pb"
    }
    hidden = {"__init__.py", "__pycache__"}
    crowded = {str(folder.relative_to(ROOT)): len({*names} - hidden) for folder, names in shown.items()}
    assert not {folder: count for folder, count in crowded.items() if count > NAMES_MAX}, "subfolders by subject"


def test_a_package_names_what_is_in_it() -> None:
    """In the docstring of its `__init__`, which a reader sees first."""
    missing: dict[str, list[str]] = {}
    for folder in {path.parent for path in modules()} - {ROOT}:
        names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        text = (folder / "__init__.py").read_text()
        unnamed = sorted(name for name in names - {"__init__", "pb"} if not re.search(rf"\b{name}\b", text))
        if unnamed and folder.name != "pb":
            missing[str(folder.relative_to(ROOT))] = unnamed
    assert not missing


def test_a_public_class_name_stands_once() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        if "pb" in path.parts:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert not {name: at for name, at in places.items() if len(at) > 1}, "one class, or two names"


TESTS = Path(__file__).parent
RUN_OTHER_TESTS = {"raft/simulation/test_mutants.py", "sim/test_planted.py"}
"""They run the tests of other modules against planted defects, which the tests must find."""


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_module_imports_another(path: Path) -> None:
    """What tests share is in a support module: of their folder, or in tests/support where several folders use it."""
    if str(path.relative_to(TESTS)) in RUN_OTHER_TESTS:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            assert not [name for name in names if name.startswith("test_")], f"line {node.lineno} imports a test module"


def test_the_map_of_the_tests_names_every_folder() -> None:
    folders = {path.parent.name for path in TESTS.glob("*/*.py")}
    text = (TESTS / "README.md").read_text()
    assert not [folder for folder in sorted(folders) if f"`{folder}/`" not in text]
