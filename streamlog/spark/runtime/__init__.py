"""What Spark runs on: Java, SPARK_HOME, sessions, Python workers, checkpoint files, the event loop."""
