"""ARCHITECTURE.md, "The ways through the code": its lists of files are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES_MAX = 18
LINE = re.compile(r"^    (?P<indent> *)(?P<path>[a-z_]+/[a-z_/]+\.py)  ")


def ways() -> dict[str, list[list[tuple[int, str]]]]:
    """By way: for each process on it, (depth, path) of its files."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    found: dict[str, list[list[tuple[int, str]]]] = {}
    for title, body in re.findall(r"^## The way of a (\w+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL):
        processes: list[list[tuple[int, str]]] = [[]]
        for line in body.splitlines():
            if line.startswith("    ~> "):
                processes.append([])
            elif (match := LINE.match(line)) is not None:
                processes[-1].append((len(match["indent"]) // 2, match["path"]))
        if any(processes):
            found[title] = processes
    return found


def imports_of(path: str) -> set[str]:
    """The files of streamlog that this one imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / "streamlog" / path).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamlog"):
            parts = (node.module or "").split(".")[1:]
            module = "/".join(parts)
            found.add(f"{module}.py")
            names = {name.name for name in node.names}
            found |= {"/".join((*parts, name)) + ".py" for name in names}
            init = ROOT / "streamlog" / module / "__init__.py"
            if init.exists():  # a name that the package passes on
                for inner in ast.walk(ast.parse(init.read_text())):
                    if isinstance(inner, ast.ImportFrom) and {a.name for a in inner.names} & {
                        a.name for a in node.names
                    }:
                        found.add("/".join((inner.module or "").split(".")[1:]) + ".py")
    return found


def test_all_are_listed() -> None:
    assert set(ways()) >= {"produce", "copy", "fetch", "join"}


@pytest.mark.parametrize("way", sorted(ways()))
def test_a_way_has_few_files_and_each_once(way: str) -> None:
    paths = [path for process in ways()[way] for _, path in process]
    assert len(set(paths)) <= FILES_MAX
    for process in ways()[way]:
        assert len({path for _, path in process}) == len(process)


@pytest.mark.parametrize("way", sorted(ways()))
def test_a_way_follows_the_imports_and_never_back(way: str) -> None:
    for process in ways()[way]:
        above: list[str] = []
        seen: list[str] = []
        for depth, path in process:
            del above[depth:]
            imported = imports_of(path)
            assert not imported & set(above), f"{path} imports what it is called by"
            assert not seen or any(path in imports_of(other) for other in seen), f"nothing before {path} imports it"
            above.append(path)
            seen.append(path)
