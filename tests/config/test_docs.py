"""docs/configuration.md is what `make docs` would write, and says what the tables say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.topic_settings import TOPIC

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, "tools/generate_config_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_setting_is_on_it() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    tables = (NODE, TOPIC, PRODUCER, CONSUMER, ADMIN)
    assert [s.name for table in tables for s in table if f"| `{s.name}` |" not in page] == []
