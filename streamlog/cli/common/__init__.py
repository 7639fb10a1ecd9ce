"""What the commands share: names in arguments, the target cluster, sessions, output, errors, progress."""
