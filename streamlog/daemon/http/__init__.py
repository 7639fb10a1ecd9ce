"""The HTTP side of a node's process: metrics, health, version; where it is enabled, the API of clients as JSON.

    listener     an HTTP server in its own thread with its own event loop, and the routes
    connection   its connections: TLS, and how long they may be idle, or not read
    node_loop    the node's event loop, as that thread reaches it
    api          the API of clients (http.api.enable)
    exposition   `Family` values -> Prometheus's text format
    loop_delay   how late the node's event loop runs its timers
    process_metrics    connections and descriptors
    absent             keeps an optional package out of memory

The HTTP thread gets the values from the node's loop, and does everything else (rendering, sockets) itself. One
collection runs at a time and is cached for a second, so a flood of scrapes costs the node no more than one a second.
"""
