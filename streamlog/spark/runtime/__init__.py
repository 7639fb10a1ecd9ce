"""What Spark runs on: Java, SPARK_HOME, sessions, Python workers, checkpoint files, the event loop.

java, spark_home     the Java runtime; a compiled SPARK_HOME
session              a session that finds them
quiet_daemon         Python workers without tracebacks of tasks that have ended
checkpoints          files of checkpoints on a local file system
"""
