"""streamlog: a distributed, partitioned, replicated commit log."""

import os

from streamlog.release import RELEASE

__version__ = RELEASE

# gRPC's fork handlers crashed every fourth program that a busy process started with a function between fork and exec,
# as PySpark starts its Java; and even with them gRPC does not work in a forked process. gRPC reads this when it is
# loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
