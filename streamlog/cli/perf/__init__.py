"""`streamlogctl perf`: `commands`; `writing` measures writes, `latencies` holds what was measured."""
