"""`streamlogctl console`: `commands` starts it; `alarms` and `users` are its subcommands."""
