"""streamlog.console; skipped by name where its packages or Chromium are missing."""
