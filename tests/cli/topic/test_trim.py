"""What `topic trim` says of what it did."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.cli.records import delete
from streamlog.client.admin.values import DeletedRecords
from streamlog.model import Offset, PartitionId, TopicPartition


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dry-run"], "Nothing was deleted: without --dry-run, the records of 13 offsets would be.\n"),
        ([], "Deleted the records of 13 offsets.\n"),
    ],
)
def test_a_dry_run_differs_from_a_real_one(options: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = TopicPartition("t", PartitionId(0))
    found = (DeletedRecords(at=at, log_start=Offset(25), error=None),), {at: Offset(12)}
    monkeypatch.setattr(delete, "with_admin", lambda _target, _work: found)
    done = CliRunner().invoke(main, ["topic", "trim", "t", "--keep-last", "5", *options])
    assert (done.exit_code, done.stderr) == (0, said)
    assert done.stdout.splitlines()[1:] == ["t\t0\t25\t13"]
