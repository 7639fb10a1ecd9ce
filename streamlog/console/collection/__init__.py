"""What the console knows of its cluster: read every few seconds, kept in a database.

sample      reads the state of the cluster: `Sample`, a value
versions    the release that each node runs
rates       two samples -> records and bytes a second, lags: pure
figures     what pages show of a sample, computed once a sample: pure
history     samples kept in SQLite (or another database by URL), downsampled, bounded
history_database    the file or database under it
voters      how far each voter of the quorum is
sampler     the task that samples, keeps the history and notifies the pages
"""
