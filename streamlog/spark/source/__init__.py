"""Reading: planning at the driver, ranges of offsets to Arrow batches on executors."""
