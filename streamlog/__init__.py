"""streamlog: a distributed, partitioned, replicated commit log."""

import os

# gRPC's handlers of forks crashed every fourth program that a busy process started with a function between fork and
# exec, as PySpark starts its Java; and with them too what a forked process does with gRPC fails. gRPC looks here when
# it is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
