"""All messages of streamlogctl, nodes and client (tools/messages.py) keep the rules of docs/style.md, and the commands
that they, the help and the documents name are understood by streamlogctl's parser.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from streamlog.cli.main import main
from tools.messages import ROOT, SOURCE, messages, page, text_of

DOCUMENTS = sorted(
    [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/operations/*.md"), *ROOT.glob("deploy/*.md")]
)
MESSAGES = messages()
# In quotes, at the start of a line of an example, or after a colon up to the end of the sentence.
_QUOTED = re.compile(r"['`](streamlogctl [^'`]+)['`]")
_LINE = re.compile(r"^\s+(?:\$ )?(streamlogctl [^\n]+)", re.MULTILINE)
_AFTER = re.compile(r": (streamlogctl [^'`\n]+?)(?:[.,;)](?=\s|$)|$)")
_OUT_OF_STYLE = re.compile(
    r"!(?:\s|$)|(?<!\.)\.\.(?:\s|$)|\b(?:please|sorry|oops|illegal|exception|traceback)\b|\bis not not\b", re.IGNORECASE
)
_OF_ALL_COMMANDS = ("--bootstrap-server", "--bootstrap-servers", "--profile", "--command-config")
_PIPE = re.compile(r"\s(?:\||>|&&|;|#)\s?")


class NotACommandError(Exception):
    """Its text: what the parser does not know."""


def check(text: str) -> None:
    """NotACommandError unless streamlogctl understands it; what it fills in is a word in braces or capitals."""
    line = re.sub(r"\{[^{}]*\}", "1", _PIPE.split(text + " ")[0]).rstrip(" \\").replace("...", " ")
    try:
        words = shlex.split(line)[1:]
    except ValueError:
        words = line.split()[1:]
    command: click.Command = main
    context = click.Context(main, info_name="streamlogctl")
    positional = 0
    options: dict[str, click.Option] = {}
    takes_all = False
    while words:
        word = words.pop(0)
        if word.startswith("-") and len(word) > 1 and not word[1:].isdecimal():
            name, _, value = word.partition("=")
            if command is main and name in _OF_ALL_COMMANDS:
                words = words[1:] if not value else words
                continue
            if isinstance(command, click.Group) and name.removeprefix("--") in command.commands:
                words.insert(0, name.removeprefix("--"))  # Kafka's dashed verbs
                continue
            if name in ("--help", "-h", "--version"):
                return
            option = options.get(name)
            if option is None:
                raise NotACommandError(f"{command.name} has no option {name}")
            if not option.is_flag and not value and not option.count:
                if not words:
                    raise NotACommandError(f"{name} needs a value")
                words = words[option.nargs :]
        elif isinstance(command, click.Group):
            if not re.fullmatch(r"[a-z][a-z-]*", word):
                return  # COMMAND, or the end of a sentence
            found = command.get_command(context, word)
            if found is None:
                raise NotACommandError(f"{command.name} has no command {word}")
            command = found
            options = {
                name: one
                for one in command.params
                if isinstance(one, click.Option)
                for name in (*one.opts, *one.secondary_opts)
            }
            takes_all = any(isinstance(one, click.Argument) for one in command.params)
        else:
            positional += 1
            if not takes_all:
                raise NotACommandError(f"{command.name} takes no argument, {word}")


def named_in_source() -> Iterator[tuple[str, str]]:
    """Where, and the command: in messages, help and docstrings."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "pb" in path.parts:
            continue
        source = path.read_text(encoding="utf-8")
        if "streamlogctl " not in source:
            continue
        inner: set[int] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                inner |= {id(value) for value in node.values}
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield from ((where, one) for one in commands_of(text_of(node)))


def commands_of(text: str) -> Iterator[str]:
    for pattern in (_QUOTED, _LINE, _AFTER):
        for match in pattern.finditer(text):
            yield match[1]


def named_in_documents() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in (*(match[1] for match in _LINE.finditer(text)), *re.findall(r"`(streamlogctl [^`\n]+)`", text)):
            yield str(path.relative_to(ROOT)), command


def test_commands_that_messages_and_help_name_exist() -> None:
    named = list(named_in_source())
    assert len(named) > 150
    assert not list(_wrong(named))


def test_commands_that_documents_name_exist() -> None:
    named = list(named_in_documents())
    assert len(named) > 100
    assert not list(_wrong(named))


def _wrong(named: list[tuple[str, str]]) -> Iterator[str]:
    for where, command in named:
        try:
            check(command)
        except NotACommandError as problem:
            yield f"{where}: {command}: {problem}"


@pytest.mark.parametrize(
    "command",
    ["streamlogctl topic cerate orders", "streamlogctl topic create orders --replicas 3", "streamlogctl nosuch"],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    with pytest.raises(NotACommandError):
        check(command)


def every_command(command: click.Command = main, path: str = "streamlogctl") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            yield from every_command(one, f"{path} {name}")
    else:
        yield path, command


def test_the_help_of_every_command_has_an_example_and_explains_each_option() -> None:
    found = dict(every_command())
    assert len(found) > 70
    without = [path for path, command in found.items() if f"  {path}" not in str(command.help)]
    assert not without
    unexplained = [
        (path, option.opts)
        for path, command in found.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert not unexplained


def test_messages_keep_the_style() -> None:
    """docs/style.md: no exclamation mark, blame or apology, one full stop, no word of the program's insides."""
    assert len(MESSAGES) > 900
    wrong = [one for one in MESSAGES if _OUT_OF_STYLE.search(one.text)]
    assert not wrong


def test_usage_errors_are_sentences() -> None:
    wrong = [
        one
        for one in MESSAGES
        if one.kind in ("UsageError", "BadParameter")
        and "/cli/" in one.path
        and not one.text.rstrip().endswith((".", "}"))
    ]
    assert not wrong


def test_the_page_has_every_message() -> None:
    text = page()
    assert text.count("\n| ") >= len(MESSAGES)
    assert Path(MESSAGES[0].path).name in text
