"""TLS of the network port.

credentials        key, chain and authorities, following their files
contexts           the same for Python's ssl
peer_certificate   what a peer's certificate says about its owner
handshakes         why a connection could not be made, in words
refusals           counts and reports callers whose connection ended before a first call
"""
