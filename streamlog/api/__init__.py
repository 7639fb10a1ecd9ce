"""The gRPC API: proto/streamlog/v1 on the network port.

The proto files are the product for every language; this package is what stands between them and the node.

    bytes --service--> message --convert--> values of the layers below --> node
          <--service-- message <--convert-- values, StreamlogError     <--

- `service` declares a gRPC service as typed asynchronous methods over the port's handlers of bytes. It parses under a
  bound, drops work whose caller has given up before it began, and turns errors into status and details.
- `errors` is the table between the error tree and google.rpc.Status, in both directions.
- `convert` checks every field and makes values of it; protobuf ends there.
- `health` and `reflection` are the two protocols that gRPC's own tools expect on every server.
- `pb` is generated (`make proto`).

Nothing here has state of its own but the health of services.
"""
