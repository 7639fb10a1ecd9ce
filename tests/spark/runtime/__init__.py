"""Sessions, Java, executors, the files of a checkpoint."""
