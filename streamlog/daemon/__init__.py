"""streamlogd: one node as a process. Not node code: arguments, signals, files, the real ports.

    main           from the arguments to the exit status
    arguments      the command line
    background     -daemon: detach, pid file, log file
    serving        the node on the real ports, until a signal
    file_limit     the limit of open files
    text_file      reads and writes files of settings
    http/          metrics and health over HTTP
    logs/          what the process writes about itself
    tls            certificates, checked and followed
    tracing_choice, tracing, span_exporters    whether and where spans go

For `streamlogctl local` and tests, clusters of such processes on this machine:

    local_cluster  a cluster in a directory: create, start, stop, kill
    local_process  processes that are recognized after their starter has ended
    local_console  the web console beside them
    free_ports     free ports on loopback
"""
