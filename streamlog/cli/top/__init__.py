"""`streamlogctl top`: `frame` is what is shown, computed from two samples; `screen` shows it; `command` runs it."""
