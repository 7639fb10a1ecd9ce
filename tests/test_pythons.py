"""tools/pythons.py: the versions of Python that pyproject.toml names. `make test-pythons` uses each that is there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
OWN = "{}.{}".format(*sys.version_info[:2])
RELEASE = "{}.{}.{}".format(*sys.version_info[:3])


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """On a machine without any Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    spec = importlib.util.spec_from_file_location("pythons", ROOT / "tools" / "pythons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_ci_runs_each_supported_version(tool: ModuleType) -> None:
    oldest, *others = tool.named()
    assert "3.14" in others
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert f'python-version: "{oldest}"' in workflow
    assert "version: [{}]".format(", ".join(f'"{version}"' for version in others)) in workflow
    assert "make test-pythons\n" in (ROOT / ".ci" / "run").read_text()
    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_the_python_of_the_path_is_used(tool: ModuleType, tmp_path: Path) -> None:
    python = program(tmp_path / "bin" / f"python{OWN}", f'exec {sys.executable} "$@"')
    assert tool.releases(OWN) == {RELEASE: python}


def test_one_of_pyenv_is_used_where_that_of_the_path_does_not_run(tool: ModuleType, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    python = program(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", "echo 3.12.1")
    assert tool.releases("3.12") == {"3.12.1": python}


def test_a_program_of_another_version_is_not_used(tool: ModuleType, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.12", "echo 3.11.7")
    assert tool.releases("3.12") == {}


def test_of_several_releases_the_oldest_is_used_and_the_own_one_is_not(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "_build", lambda folder: None)
    program(tmp_path / "bin" / f"python{OWN}", f'exec {sys.executable} "$@"')
    newer = program(tmp_path / "pyenv" / "versions" / "3.14.10" / "bin" / "python3.14", "echo 3.14.10")
    older = program(tmp_path / "pyenv" / "versions" / "3.14.9" / "bin" / "python3.14", "echo 3.14.9")
    assert tool.releases("3.14") == {"3.14.9": older, "3.14.10": newer}
    assert tool.main() == 0
    used = [line for line in capfd.readouterr().out.splitlines() if "skipped" not in line]
    assert used[0].startswith("Python 3.14.9: ")
    assert not any("3.14.10" in line or RELEASE in line for line in used)


def test_a_version_that_is_missing_is_skipped_by_name(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Python {version} is skipped: no python{version} in PATH or among pyenv's versions"
        for version in tool.named()
        if version != OWN
    ]
