"""Every message that streamlogctl, the nodes and the client can show, collected from their source.

    python -m tools.messages > messages.md

A message is the text of an error, of a usage error, or of a line that a command prints. What a message fills in is
shown as its expression in braces. The page of the site is made from it (`build_site`), and a test reads all of them
(tests/cli/test_messages.py): the rules of docs/style.md, and that the commands that they name exist.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "streamlog"
# Calls whose first text is shown to a user, besides those of error classes.
_PRINTED: Final = frozenset({"say", "echo", "UsageError", "BadParameter", "ClickException"})
# Further texts that reach users: fields of findings, remedies.
_FIELDS: Final = frozenset({"problem", "cause", "remedy"})
# Errors of the program itself, or caught where they are raised.
_INNER: Final = frozenset(
    {"AssertionError", "CancelledError", "InvariantError", "KeyError", "TimeoutError", "TypeError", "ValueError"}
)


class Message(NamedTuple):
    path: str  # below the repository
    line: int
    kind: str  # the error's class, or the function that prints it
    text: str


def messages() -> list[Message]:
    """By path and line; generated code left out."""
    found: list[Message] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if "/pb/" not in name:
            found += sorted(
                set(_in_module(name, ast.parse(path.read_text(encoding="utf-8")))), key=lambda one: one.line
            )
    return found


def _in_module(path: str, tree: ast.Module) -> Iterator[Message]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            kind = _name(node.func)
            if kind in _PRINTED or (kind.endswith("Error") and kind not in _INNER):
                for argument in node.args[:1]:
                    yield from _texts(path, kind, argument)
            for keyword in node.keywords:
                if keyword.arg in _FIELDS:
                    yield from _texts(path, kind, keyword.value)
        elif isinstance(node, ast.Dict) and path.endswith("cli/common/failures.py"):
            for value in node.values:
                yield from _texts(path, "remedy", value)


def _texts(path: str, kind: str, node: ast.expr) -> Iterator[Message]:
    """The texts that an expression can be: of both branches of a condition, too."""
    if isinstance(node, ast.IfExp):
        yield from _texts(path, kind, node.body)
        yield from _texts(path, kind, node.orelse)
        return
    text = text_of(node)
    if any(character.isalpha() for character in text.replace("{", "").replace("}", "")) and " " in text:
        yield Message(path, node.lineno, kind, text)


def text_of(node: ast.expr) -> str:
    """Empty where it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) if isinstance(value, ast.Constant) else _filled(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
    return ""


def _filled(value: ast.expr) -> str:
    return "{" + (ast.unparse(value.value) if isinstance(value, ast.FormattedValue) else "") + "}"


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def page() -> str:
    """Markdown: one table for each package."""
    lines = [
        "# Messages\n",
        "What streamlogctl, the nodes and the Python client say; in braces what is filled in. Errors of nodes reach",
        "clients with the reason that [the guide for clients](../docs/clients.md) explains.\n",
    ]
    package = ""
    for one in messages():
        current = "/".join(Path(one.path).parts[1:3]).removesuffix(".py")
        if current != package:
            package = current
            lines += [f"\n## {package}\n", "| message | kind | where |", "|---|---|---|"]
        text = one.text.replace("|", "\\|").replace("\n", " ").replace("`", "'").strip()
        lines.append(f"| `{text}` | {one.kind} | {Path(one.path).name}:{one.line} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(page())
