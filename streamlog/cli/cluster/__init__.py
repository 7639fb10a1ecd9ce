"""`streamlogctl cluster`: `commands`, `health`. `debug`: the command of that name, which collects a bundle."""
