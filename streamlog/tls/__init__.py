"""Certificates: who a node or a client is, and the files that say so.

    authority.py   makes a certificate authority, and certificates of nodes and clients (`streamlogctl security`)
    identity.py    the node id in a node's certificate
    material.py    key, chain and trusted authorities as loaded and checked from the ssl.* settings
    openssl.py     the same for Python's `ssl`: HTTPS
    private_files.py     writes files that others must not read
    settings_files.py    the ssl.* settings that use the files of a directory
    described.py   the certificates in a file, for people
    callers.py     who may call the services between nodes

Connections are mutual TLS (1.2 or 1.3): both sides present a certificate of an authority that the other side trusts. A
node's certificate also names its node id (a URI, `urn:streamlog:node:3`), and only such a certificate may call the
services between nodes. TLS itself is Python's `ssl` (`streamlog.ports.grpc_adapter.tls`; for HTTPS, `openssl` here).
"""
