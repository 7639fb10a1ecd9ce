"""Each rule of deploy/prometheus fires while its fault lasts, and not before or after: by promtool, in virtual time.

A series is healthy for 2 minutes, faulty for 30, and healthy again for 30. `count(ALERTS)` is read shortly before the
fault, at its end, and half an hour later.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

PROMETHEUS: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES: Final = sorted(PROMETHEUS.glob("*.rules.yml"))
STEP_S: Final = 15
HEALTHY_STEPS: Final = 2 * 60 // STEP_S
FAULTY_STEPS: Final = 30 * 60 // STEP_S
DAY_S: Final = 86_400

Series = Mapping[str, Sequence[float]]
"""Values by name and labels, one every STEP_S."""


def level(healthy: float, faulty: float) -> list[float]:
    return [healthy] * HEALTHY_STEPS + [faulty] * FAULTY_STEPS + [healthy] * FAULTY_STEPS


def counter(healthy_step: float, faulty_step: float) -> list[float]:
    total, found = 0.0, []
    for step in level(healthy_step, faulty_step):
        found.append(total)
        total += step
    return found


def slow(name: str, labels: str, fast_bound: str, slow_bound: str) -> Series:
    """A histogram whose observations are below `fast_bound`, and in the fault between it and `slow_bound`."""
    everything = counter(10, 10)
    return {
        f'{name}_bucket{{{labels},le="{fast_bound}"}}': counter(10, 0),
        f'{name}_bucket{{{labels},le="{slow_bound}"}}': everything,
        f'{name}_bucket{{{labels},le="+Inf"}}': everything,
    }


A: Final = 'instance="a"'
FAULTS: Final[dict[str, Series]] = {
    "StreamlogNodeDown": {
        'up{job="streamlog",instance="a"}': level(1, 0),
        'up{job="streamlog",instance="b"}': level(1, 1),
    },
    "StreamlogNodeNotReady": {f"streamlog_ready{{{A}}}": level(1, 0)},
    "StreamlogOfflinePartitions": {f"streamlog_cluster_offline_partitions{{{A}}}": level(0, 2)},
    "StreamlogUnderMinIsr": {f"streamlog_under_min_isr_partitions{{{A}}}": level(0, 1)},
    "StreamlogUnderReplicated": {f"streamlog_under_replicated_partitions{{{A}}}": level(0, 3)},
    "StreamlogNoController": {
        f"streamlog_active_controller{{{A}}}": level(1, 0),
        'streamlog_active_controller{instance="b"}': level(0, 0),
    },
    "StreamlogVoterLags": {f'streamlog_quorum_voter_lag_entries{{{A},voter="3"}}': level(2, 5000)},
    "StreamlogUncleanElection": {f"streamlog_controller_unclean_leader_elections_total{{{A}}}": counter(0, 0.1)},
    "StreamlogRecoveryWaiting": {f"streamlog_controller_recovery_waiting_partitions{{{A}}}": level(0, 1)},
    "StreamlogClockSkew": {
        f"streamlog_clock_skew_seconds{{{A}}}": level(0.01, -20),
        f"streamlog_clock_skew_limit_seconds{{{A}}}": level(5, 5),
    },
    "StreamlogDamagedLog": {f'streamlog_damaged_ranges{{{A},log_dir="/d"}}': level(0, 1)},
    "StreamlogDiskFailed": {f'streamlog_log_dir_online{{{A},log_dir="/d"}}': level(1, 0)},
    "StreamlogDiskFull": {
        f'streamlog_log_dir_free_bytes{{{A},log_dir="/d"}}': level(500, 99),
        f'streamlog_log_dir_total_bytes{{{A},log_dir="/d"}}': level(1000, 1000),
    },
    "StreamlogSlowSyncs": slow("streamlog_log_sync_duration_seconds", f'{A},log_dir="/d"', "0.1", "10"),
    "StreamlogReadersThrottled": {f"streamlog_readers_throttled_total{{{A}}}": counter(0, 1)},
    "StreamlogConnectionsRefused": {f'streamlog_connections_closed_total{{{A},reason="x"}}': counter(0, 1)},
    "StreamlogOutOfDescriptors": {f"streamlog_reserved_descriptors_used_total{{{A}}}": counter(0, 1)},
    "StreamlogCertificateExpires": {  # promtool's clock begins at 0
        f'streamlog_certificate_expiry_timestamp_seconds{{{A},store="keystore"}}': level(40 * DAY_S, 29 * DAY_S)
    },
    "StreamlogAuditDropped": {f'streamlog_audit_dropped_total{{{A},sink="file"}}': counter(0, 1)},
    "StreamlogCorruptBatches": {f'streamlog_topic_corrupt_batches_refused_total{{{A},topic="t"}}': counter(0, 1)},
    "StreamlogGroupLag": {  # the coordinator on one node, the leader on another one
        f'streamlog_group_committed_offset{{{A},group="g",topic="t",partition="0"}}': level(10, 10),
        'streamlog_high_watermark{instance="b",topic="t",partition="0"}': level(10, 200_000),
    },
    "StreamlogLongTransaction": {f"streamlog_oldest_transaction_age_seconds{{{A}}}": level(3, 4000)},
    "StreamlogEventLoopBlocked": slow("streamlog_event_loop_delay_seconds", A, "0.1", "5"),
}


def test_each_rule_has_its_fault() -> None:
    alerts = re.findall(r"- alert: (\w+)", (PROMETHEUS / "alerts.rules.yml").read_text())
    assert sorted(FAULTS) == sorted(alerts)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_each_rule_fires_while_its_fault_lasts(tmp_path: Path) -> None:
    document = {
        "rule_files": [str(path) for path in RULES],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [_test(alert, series) for alert, series in FAULTS.items()],
    }
    path = tmp_path / "faults.yml"
    path.write_text(json.dumps(document))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_a_rule_that_never_fires_would_be_found(tmp_path: Path) -> None:
    healthy = {name: [values[0]] * len(values) for name, values in FAULTS["StreamlogDiskFull"].items()}
    document = {
        "rule_files": [str(path) for path in RULES],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [_test("StreamlogDiskFull", healthy)],
    }
    path = tmp_path / "faults.yml"
    path.write_text(json.dumps(document))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0


def _test(alert: str, series: Series) -> dict[str, object]:
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > 0'
    others = f'count(ALERTS{{alertname!="{alert}",alertstate="firing"}})'
    before_s = (HEALTHY_STEPS - 1) * STEP_S
    end_s = (HEALTHY_STEPS + FAULTY_STEPS - 1) * STEP_S
    after_s = (HEALTHY_STEPS + 2 * FAULTY_STEPS - 1) * STEP_S
    one = [{"labels": "{}", "value": 1}]
    return {
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": name, "values": " ".join(f"{value:g}" for value in values)} for name, values in series.items()
        ],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{before_s}s", "exp_samples": []},
            {"expr": firing, "eval_time": f"{end_s}s", "exp_samples": one},
            {"expr": firing, "eval_time": f"{after_s}s", "exp_samples": []},
            {"expr": others, "eval_time": f"{end_s}s", "exp_samples": []},
        ],
    }
