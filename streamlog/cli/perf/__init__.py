"""`streamlogctl perf`: `commands`; `writing` measures writes, `latencies` holds results. `verifiable`: that command."""
