"""`streamlogctl`: one module or package for each command, loaded when the command is called (`main`).

`common` is what they share; `records` has produce and consume.

topic, group, partition, records, transaction, cluster, config, broker_logger, security, dump, top, perf, local,
console, pipeline and completion are the commands' own names (`security` has `acl` and `user`, too, and `cluster` has
`debug`, `doctor` and `profile`).

Exit codes, the same for every command: 0 done, 1 failed or something is damaged, 2 wrong usage; `cluster health` and
`doctor`: 3 findings. Results go to standard output, everything else (errors, progress) to standard error. An error is
one sentence that says what is wrong and what to do.
"""
