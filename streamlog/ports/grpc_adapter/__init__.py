"""The network port over gRPC, on the event loop: HTTP/2 (RFC 9113) and gRPC's protocol over it, both ends.

network             GrpcNetwork: makes servers and channels, closes them
settings            of both sides
channel             the calling side of one address
connecting          its TCP connections
client_connection   its HTTP/2 connections, and the streams of its calls
server              the serving side of one address
server_connection   its HTTP/2 connections and calls
handlers            from a request's headers to its handler, and from the outcome to a status
call                one call, on either side: messages, and how much may be under way
connection          HTTP/2, on either side
frame_reader        what arrives there, as frames and header blocks, bounded
send_progress       whether a peer takes what was written
inflow              what has arrived and is not read, bounded for a whole server
frames              HTTP/2's frames
metadata            gRPC's header fields
header_coding       their bytes, with a memory for those that repeat
accepting           connections on their way in, and their limits
tls                 certificates, and what they say

gRPC's own library has threads, and each message is handed over between them and the loop four times: that was two
thirds of the time of a record (docs/decisions/2026-11-26-http2.md).
"""
