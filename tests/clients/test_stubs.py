"""`make stubs`: the package of each language is built, and a program of another folder uses it against a node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.stubs.__main__ import build_and_use, node
from tools.stubs.languages import LANGUAGES, Language
from tools.stubs.work import Skipped

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with node() as address:
        yield address


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_program_uses_the_package(language: Language, server: str) -> None:
    try:
        built = build_and_use(language, server)
    except Skipped as reason:
        pytest.skip(f"{language.name}: {reason}")
    assert built
