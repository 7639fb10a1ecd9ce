"""streamlog.monitor."""
