"""streamlog-spark-python: what Spark starts in place of Python (PYSPARK_PYTHON), so that queries start faster.

For a query with a source and a sink in Python, Spark starts seven Python processes, most of them one after the other.
Each imports pyspark from an archive of sources, which Python compiles each time. This program does the same faster:

1. pyspark is imported from where pip has compiled it, if the archive is of the same installation, and without Spark's
   jar in the path (`compiled`).
2. The first process leaves a fork server behind, which imports what the others will need, while it has nothing else to
   do, and starts them by forks.

    Spark's Java process
      | starts: streamlog-spark-python -m pyspark.daemon ...
      v
    launcher  ---- arguments, environment; stdin, stdout, stderr ---->  fork server  -- fork -->  process
              <--- the process's id; go ahead --->                           |
              <--- its exit code --------------------------------------------+

The launcher is this program, or streamlog-spark-native of the optional kernel, which is no Python: it asks in 2 ms
instead of some 50 (`kernel/streamlog_spark_native.c`), and becomes this program where no server forks. Java knows only
the launcher, so it waits, passes signals on, and ends with the process's exit code.

A fork is what a process of its own would be, or the server refuses it: the server serves one Java process, one user,
one interpreter, path, directory and environment, but for the variables that Spark sets for each process (`address`). It
has a single thread, and so has the process that leaves it, or it does not serve. Where there is no server, as it was
killed, say, or it does not answer, Python is started as without all this. It ends with the Java process, and its
processes do.

    main          the program: what it does with which arguments
    start         with what a process is started
    address       of the server that may start it
    compiled      the installed pyspark before its archive in the path
    fork_client   the launcher's side
    fork_server   the server

`main` and what it imports are imported for each process, so they import little: not `typing`, for one.
"""
