"""streamlog: a distributed, partitioned, replicated commit log."""

import os

from streamlog.release import RELEASE

__version__ = RELEASE

# For programs that load gRPC's library besides, which streamlog does not, but OpenTelemetry's exporter: its fork
# handlers crashed every fourth program that a busy process started with a function between fork and exec, as PySpark
# starts its Java. It reads this when it is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
