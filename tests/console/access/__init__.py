"""streamlog.console.access."""
