"""The HTTP side of a node's process: metrics, health, version. Read only; gRPC is what clients use.

    listener     an HTTP server in a thread of its own, with its own event loop, and the routes
    exposition   `Family` values -> the text that Prometheus reads
    loop_delay   how late the node's event loop is

The HTTP thread asks the node's loop for numbers and does everything else (rendering, sockets) itself. One collection
runs at a time and is good for a second, so that a flood of scrapes costs the node no more than one a second.
"""
