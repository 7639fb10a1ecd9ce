"""Decodes keys and values for a page.

text        text, JSON, hexadecimal; a JSON line for downloads: pure
schemas     Avro and Protobuf, by a schema file that is uploaded
worker      the process in which schemas and values by them are decoded, with limits of time and memory
process     starts the worker, calls it, and starts another one when it was ended
"""
