"""What Spark runs on: Java, sessions, Python workers, checkpoint files, the event loop.

java                 the Java runtime
session              a session that finds it
quiet_daemon         Python workers without tracebacks of tasks that have ended
checkpoints          files of checkpoints on a local file system
"""
