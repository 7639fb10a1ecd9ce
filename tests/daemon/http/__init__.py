"""streamlog.daemon.http."""
