"""The public proto files, as stock protoc sees them."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).parent.parent.parent
PROTO_ROOT = ROOT / "proto"


@functools.cache
def check_api() -> ModuleType:
    """tools/check_api.py, which is a script and in no package."""
    path = ROOT / "tools" / "check_api.py"
    spec = importlib.util.spec_from_file_location("check_api", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_api"] = module
    spec.loader.exec_module(module)
    return module


@functools.cache
def public_files() -> FileDescriptorSet:
    """With comments."""
    found = check_api().compile_protos(PROTO_ROOT, with_comments=True)
    assert isinstance(found, FileDescriptorSet)
    return found
