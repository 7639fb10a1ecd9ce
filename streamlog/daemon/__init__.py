"""streamlogd: one node as a process. Not node code: arguments, signals, files, the real ports.

main          from the arguments to the exit status
arguments     the command line
process       what the process asks of the machine: file descriptors
background    -daemon: detach, pid file, log file
log_lines     what the node's parts tell, as lines for people
"""
