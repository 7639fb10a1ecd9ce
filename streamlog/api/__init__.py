"""The gRPC API: proto/streamlog/v1 on the network port.

The proto files are the API for every language; this package connects them to the node.

    bytes --service--> message --convert--> values of the layers below --> node
          <--service-- message <--convert-- values, StreamlogError     <--

- `service` declares a gRPC service as typed asynchronous methods over the port's handlers of bytes. It bounds
  (`entry_counts`) and parses requests, drops calls whose deadline has passed before they begin, and converts errors to
  status and details; `responses` bounds and parses those of other nodes.
- `errors` maps the error tree to google.rpc.Status and back.
- `convert` checks every field and converts it to values; protobuf ends there.
- `health` and `reflection` are the two protocols that gRPC tools expect of every server.
- `fetched` encodes fetch responses around the bytes of batches, `wire_format` the protobuf by hand that this takes.
- `request_resources` and `request_attributes` are what audit events and spans say of a request.
- `pb` is generated (`make proto`).

Only `health` has state.
"""
