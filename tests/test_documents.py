"""Every file, folder and class that the pages of the repository name exists, so that a move is seen in them.

Decision records (docs/decisions) and CHANGELOG keep the names of their day.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    [
        *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
        *ROOT.glob("docs/*.md"),
        *(ROOT / one / "README.md" for one in ("deploy", "examples", "tests")),
    ]
)
_FILE = re.compile(r"(?<![\w/.~$*:%<>{}-])((?:[\w-]+/)*[\w-]+\.(?:py|c|md|proto|yml|yaml|toml|service))\b(?![/(])")
_FOLDER = re.compile(r"`((?:[\w-]+/)+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
_CLASS = re.compile(r"`(?:streamlog\.)?((?:[a-z_]+\.)+)([A-Z]\w*[a-z]\w*)`")
# Where a document's short paths start.
_BASES = ("", "streamlog/", "tests/", "docs/")


def _tracked() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    files = {name for name in listed if (ROOT / name).is_file()}
    return files | {str(folder) for name in files for folder in PurePosixPath(name).parents}


TRACKED = _tracked()
NAMES = {PurePosixPath(name).name for name in TRACKED}


def unknown_paths(text: str, folder: str = "") -> Iterator[str]:
    """Paths that do not exist. `folder`: of the document, with a slash at its end; empty: the root."""
    for match in (*_FILE.finditer(text), *_FOLDER.finditer(text)):
        path = match[1].rstrip("/")
        if "/" not in path and path in NAMES:
            continue
        if not any(base + path in TRACKED for base in (*_BASES, folder)):
            yield match[1]
    for match in _LINK.finditer(text):
        target = (ROOT / folder / match[1]).resolve()
        if not target.exists():
            yield match[1]


def unknown_classes(text: str) -> Iterator[str]:
    for match in _CLASS.finditer(text):
        module, name = match[1].rstrip(".").replace(".", "/"), match[2]
        sources = [ROOT / "streamlog" / f"{module}.py", *(ROOT / "streamlog" / module).glob("*.py")]
        defined = re.compile(rf"^(?:class {name}\b|{name}\s*[:=])", re.MULTILINE)
        if not any(source.is_file() and defined.search(source.read_text()) for source in sources):
            yield match[0].strip("`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    folder = str(document.parent.relative_to(ROOT))
    assert not [*unknown_paths(text, "" if folder == "." else f"{folder}/"), *unknown_classes(text)]


def test_a_stale_name_is_found() -> None:
    paths = "`storage/no_such_file.py`, `no_such_folder/`, [page](no-such-page.md), README.md"
    text = f"{paths}, `storage.log.log.NoSuchClass`, `storage.log.log.Log`"
    assert sorted({*unknown_paths(text), *unknown_classes(text)}) == [
        "no-such-page.md",
        "no_such_folder/",
        "storage.log.log.NoSuchClass",
        "storage/no_such_file.py",
    ]
