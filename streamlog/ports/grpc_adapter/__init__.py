"""The network port over grpc.aio.

network       GrpcNetwork: makes servers and channels, closes them
server        the serving side; handlers by method name
channel       the calling side
stream        the two ends of a streaming call
settings      options of gRPC on both sides, the table of status codes
connections   limits on the connections that a server accepts
late_events   silences tracebacks of events that arrive after their loop was closed
"""
