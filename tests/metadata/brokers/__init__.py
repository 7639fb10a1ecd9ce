"""Registration, heartbeats and sessions of nodes."""
