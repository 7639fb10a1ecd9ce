"""`streamlogctl cluster`: `commands` are its verbs, `health` is the largest of them."""
