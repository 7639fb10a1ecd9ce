"""tools/lowest.py: the lowest versions that pyproject.toml allows. `make test-lowest` installs and runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lowest", ROOT / "tools" / "lowest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lowest_version_of_each_requirement_alone(tool: ModuleType) -> None:
    requirements = ["click>=8.1,<9", "pysyncobj==0.3.17", "uvloop>=0.21; sys_platform == 'linux'", "a[b]~=1.2,>=1.2.10"]
    assert list(tool.lowest(requirements)) == [
        "click==8.1",
        "pysyncobj==0.3.17",
        'uvloop==0.21; sys_platform == "linux"',
        "a==1.2.10",
    ]


def test_a_requirement_without_a_lowest_version_is_an_error(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="rich<14: no lowest version is named"):
        list(tool.lowest(["rich<14"]))


def test_every_dependency_names_its_lowest_version(tool: ModuleType) -> None:
    assert len(list(tool.lowest(tool.declared()))) == len(tool.declared()) > 10


def test_ci_tries_them() -> None:
    assert "make test-lowest\n" in (ROOT / ".ci" / "run").read_text()
