"""The user's list, row by row: each test's docstring is the row's words, or those of its part that the test shows.

Through raw gRPC stubs, the Python client and streamlogctl, on real nodes.
"""
