"""The file of rules and channels.

rule_file        TOML -> rules and channels, strictly validated; edits keep its comments: pure
fields           a table's fields, with their types and bounds: pure
channel_fields   a table -> a channel: pure
rule_storage     the file on disk: read when it changed, replaced atomically
"""
