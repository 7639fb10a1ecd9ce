"""`streamlogctl user`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.served import USAGE, ServedCluster


@pytest.mark.parametrize("command", ["create", "rotate"])
def test_a_password_that_is_no_text(served: ServedCluster, tmp_path: Path, command: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"geheim\xfc\n")
    done = served.run("user", command, "alice", "--password-file", str(file))
    assert done.exit_code == USAGE
    assert "Invalid value for --password-file: the file is not UTF-8 text." in done.stderr
    assert "geheim" not in done.output
