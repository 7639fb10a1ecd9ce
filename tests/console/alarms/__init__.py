"""streamlog.console.alarms."""
