"""The network port over grpc.aio.

network       GrpcNetwork: makes servers and channels, closes them
server        the serving side; handlers by method name
channel       the calling side
stream        the two ends of a streaming call
settings      options of gRPC on both sides, the table of status codes
connections   limits on the connections that a server accepts
connection_rate   how fast connections may be opened
syn_filter    requests to connect that the kernel does not answer
deferred_accept   silent connections stay in the kernel
descriptors   this process's sockets, found by their port
credentials   TLS, following its files
handshakes    why a connection could not be made, in words
handshake_watch   connections over TLS that end before a first call, with their addresses
late_events   silences tracebacks of events that arrive after their loop was closed
abandoned_batches   frees what grpcio keeps of cancelled operations
"""

import os

# gRPC's core writes a line to stderr for each failed handshake; what matters is in the errors. Kept if it is set.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
