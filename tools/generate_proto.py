"""Generate Python from proto/ into the packages that use it; `--check` only says what is out of date.

    python tools/generate_proto.py [--check]

Each proto file goes to one package (TARGETS): generated code stands beside its only user, and protobuf ends at that
package's convert module. The descriptor keeps the full path under proto/ as its name, so that two files called alike
do not meet in protobuf's registry. Where one file imports another, the generated import is turned from the path under
proto/ to the package that the other one goes to. The comments of the public files go to a file of their own
(`proto_comments`).
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc
from proto_comments import TARGET, text

ROOT = Path(__file__).resolve().parent.parent

TARGETS = {
    "streamlog/internal/v1/controller.proto": "streamlog/api/pb",
    "streamlog/internal/v1/coordination.proto": "streamlog/api/pb",
    "streamlog/internal/v1/identification.proto": "streamlog/api/pb",
    "streamlog/internal/v1/metadata.proto": "streamlog/metadata/pb",
    "streamlog/internal/v1/raft.proto": "streamlog/raft/pb",
    "streamlog/internal/v1/replication.proto": "streamlog/api/pb",
    "streamlog/v1/admin.proto": "streamlog/api/pb",
    "streamlog/v1/batches.proto": "streamlog/api/pb",
    "streamlog/v1/cluster.proto": "streamlog/api/pb",
    "streamlog/v1/common.proto": "streamlog/api/pb",
    "streamlog/v1/groups.proto": "streamlog/api/pb",
    "streamlog/v1/records.proto": "streamlog/api/pb",
    "streamlog/v1/transactions.proto": "streamlog/api/pb",
}
"""Proto file under proto/ -> package directory. A package needs an empty `__init__.py`."""


def generate(source: str, scratch: Path) -> dict[str, str]:
    """File name -> content of what protoc makes of `source`. RuntimeError when it refuses."""
    out = scratch / source.replace("/", "_")
    out.mkdir()
    well_known = Path(protoc.__file__).parent / "_proto"
    plugin = Path(sys.executable).parent / "protoc-gen-mypy"
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--plugin={plugin}"]
    if protoc.main([*arguments, f"--python_out={out}", f"--mypy_out=quiet:{out}", source]) != 0:
        raise RuntimeError(f"protoc refuses {source}")
    return {path.name: _with_our_imports(path.read_text()) for path in sorted(out.rglob("*_pb2.py*"))}


def _with_our_imports(content: str) -> str:
    def ours(found: re.Match[str]) -> str:
        target = TARGETS.get(f"{found[1].replace('.', '/')}/{found[2]}.proto")
        package = found[1] if target is None else target.replace("/", ".")
        return f"from {package} import {found[2]}_pb2 "

    return re.sub(r"^from ([\w.]+) import (\w+)_pb2 ", ours, content, flags=re.MULTILINE)


def out_of_date(*, write: bool) -> list[str]:
    """Generated files that differ from what protoc makes now, relative to the root; rewritten when `write`."""
    stale = []
    with tempfile.TemporaryDirectory() as scratch:
        for source, target in TARGETS.items():
            for name, content in generate(source, Path(scratch)).items():
                path = ROOT / target / name
                if not path.exists() or path.read_text() != content:
                    stale.append(str(path.relative_to(ROOT)))
                    if write:
                        path.write_text(content)
    content = text()
    if not TARGET.exists() or TARGET.read_text() != content:
        stale.append(str(TARGET.relative_to(ROOT)))
        if write:
            TARGET.write_text(content)
    return stale


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = out_of_date(write=not check)
    for path in stale:
        print(f"{path} {'is out of date: run `make proto`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
