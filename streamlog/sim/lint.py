"""A lint for code that runs in simulation: forbidden calls, and iteration without a defined order.

It sees only the text: a call by its name, a set by its literal, constructor, annotation or a name in the same file. It
is strict on purpose; a comment `# sim: <reason>` on the line suppresses a finding.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

CALLS: Final = {
    "id": "differs from run to run",
    "hash": "of a string differs from run to run",
    "open": "goes past the FileSystem port",
    "input": "waits for a user",
}
ATTRIBUTES: Final = {
    "to_thread": "use the Workers port",
    "run_in_executor": "use the Workers port",
    "call_soon_threadsafe": "there is one thread",
    "run_coroutine_threadsafe": "there is one thread",
    "ensure_future": "use a TaskGroup",
    "as_completed": "yields in the order of a set",
    "all_tasks": "is a set, ordered by address",
    "add_reader": "go by the Network port",
    "add_writer": "go by the Network port",
    "open_connection": "go by the Network port",
    "start_server": "go by the Network port",
}
ORDER_FREE: Final = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
"""Calls whose result does not depend on the order of what they are given."""
ORDERED: Final = frozenset({"dict", "enumerate", "iter", "list", "map", "reversed", "tuple", "zip", "join", "extend"})
"""Calls whose result depends on the order."""
PRAGMA: Final = "# sim: "


class LintFinding(Struct, frozen=True, order=True):
    line: int
    what: str


def lint(source: str) -> list[LintFinding]:
    """Findings by line. SyntaxError if it is not Python."""
    tree = ast.parse(source)
    allowed = {number for number, text in enumerate(source.splitlines(), 1) if PRAGMA in text}
    found = _Calls().findings(tree) + _Sets(tree).findings(tree)
    return sorted({finding for finding in found if finding.line not in allowed})


class _Calls:
    """Calls and statements that are never allowed."""

    def findings(self, tree: ast.AST) -> list[LintFinding]:
        return [LintFinding(line, what) for node in ast.walk(tree) for line, what in self._of(node)]

    def _of(self, node: ast.AST) -> Iterator[tuple[int, str]]:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield node.lineno, f"{name}(): {CALLS[name]}"
            case ast.Call(func=ast.Attribute(attr="create_task", value=owner)) if _is_loop(owner):
                yield node.lineno, "create_task outside a TaskGroup: its exception is lost"
            case ast.Attribute(attr=name) if name in ATTRIBUTES:
                yield node.lineno, f"{name}: {ATTRIBUTES[name]}"
            case ast.ImportFrom(names=names):
                for alias in names:
                    if alias.name in ATTRIBUTES or alias.name == "create_task":
                        yield node.lineno, f"{alias.name}: {ATTRIBUTES.get(alias.name, 'use a TaskGroup')}"
            case ast.ExceptHandler(type=kind) if _catches_all(kind) and not _raises_again(node):
                yield node.lineno, "swallows BaseException, and with it kill -9 and cancellation"
            case ast.Global():
                yield node.lineno, "a global that changes: three nodes share the process"


def _is_loop(owner: ast.expr) -> bool:
    """asyncio.create_task, loop.create_task, self._loop.create_task, get_running_loop().create_task."""
    if isinstance(owner, ast.Call):
        owner = owner.func
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name == "asyncio" or "loop" in name


def _catches_all(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_catches_all(one) for one in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id == "BaseException")


def _raises_again(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


class _Sets:
    """Uses of a set whose result depends on its order."""

    def __init__(self, tree: ast.AST) -> None:
        self._names: set[str] = set()  # variables, and attributes of self, that hold a set somewhere in the file
        known = -1
        while known != len(self._names):  # a set given to another name, at any depth
            known = len(self._names)
            for node in ast.walk(tree):
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.AnnAssign(target=target, annotation=kind) if _is_set_type(kind):
                self._names.add(_name(target))
            case ast.arg(arg=name, annotation=ast.expr() as kind) if _is_set_type(kind):
                self._names.add(name)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Await(value=ast.Call(func=func))):
                if _name(func) in ("wait", "asyncio.wait"):
                    self._names.update(_name(target) for target in targets)
            case ast.Assign(targets=targets, value=value) if self._is_set(value):
                self._names.update(_name(target) for target in targets)
        self._names.discard("")

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(value=owner, attr="union" | "difference" | "intersection" | "copy")):
                return self._is_set(owner)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return self._is_set(left) or self._is_set(right)
            case ast.Name() | ast.Attribute():
                return _name(node) in self._names
        return False

    def findings(self, tree: ast.AST) -> list[LintFinding]:
        free = {
            id_
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDER_FREE
            for id_ in map(_place, node.args)
        }
        return [
            LintFinding(used.lineno, f"the order of {ast.unparse(used)}: sort it")
            for node in ast.walk(tree)
            if not (isinstance(node, ast.GeneratorExp | ast.ListComp) and _place(node) in free)
            for used in self._ordered_uses(node)
            if self._is_set(used)
        ]

    def _ordered_uses(self, node: ast.AST) -> Iterator[ast.expr]:
        """What this node takes in order."""
        match node:
            case ast.For(iter=used) | ast.AsyncFor(iter=used) | ast.Starred(value=used) | ast.YieldFrom(value=used):
                yield used
            case ast.ListComp(generators=parts) | ast.GeneratorExp(generators=parts) | ast.DictComp(generators=parts):
                yield from (part.iter for part in parts)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in ORDERED:
                yield from args
            case ast.Call(func=ast.Attribute(attr="pop", value=owner), args=[]):
                yield owner


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_set_type(kind: ast.expr) -> bool:
    if isinstance(kind, ast.Subscript):
        kind = kind.value
    return _name(kind).rpartition(".")[2] in ("set", "frozenset", "AbstractSet", "MutableSet")


def _name(node: ast.expr) -> str:
    """`a` or `self.a`; empty for what is neither."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
    return ""


def main(paths: list[str]) -> int:
    """`python -m streamlog.sim.lint FILE...`: prints findings; 1 if there are any."""
    count = 0
    for path in paths:
        for finding in lint(Path(path).read_text()):
            print(f"{path}:{finding.line}: {finding.what}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
