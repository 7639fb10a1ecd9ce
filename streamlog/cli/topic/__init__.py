"""`streamlogctl topic`: `commands`, and `text`: how describe prints topics."""
