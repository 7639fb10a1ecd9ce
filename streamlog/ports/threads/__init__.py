"""Blocking calls in threads: `off_loop` for any, `syncs` for those of the disk that a record waits for."""
