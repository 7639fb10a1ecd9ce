"""The API of clients as JSON over HTTP/1.1, by the Connect protocol, with server-sent events for streams.

    methods         which methods are served, from the descriptors
    front           a request from its headers to its response
    streams         methods with many responses
    resume          ids of events, from which a reader continues
    origins         which web pages and host names are answered
    body            reads a request's body, bounded in size and time
    json_messages   JSON <-> messages, bounded
    openapi, docs_page    the methods and messages as a document, and as a page
    api_errors      errors as Connect's JSON, with an HTTP status

All of it runs in the HTTP listener's thread. The node's loop gets a request as bytes and returns the response as bytes
(`NodeLoop`, `node.in_process_calls`), through the same handlers as a call by gRPC. The caller is what its
`Authorization` says, and has that caller's rights; no certificate is ever passed on.
"""
