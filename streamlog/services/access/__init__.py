"""Authentication and authorization of the calls of clients. Where no authorizer is set, none of it runs.

gate            around every method: who calls, and a guard for the call; ends streams that lose their right
authenticator   passwords: checked once, remembered for a while
authorizer      decisions, remembered until the access control lists change
access_lease    how long the node decides by its copy of the lists and users
guard           what one call may do
method_rights   the table: which method needs which right
visible         topics of a list that a caller may see
token_keys      the public keys of the token issuer
token_logins, token_sessions    callers with bearer tokens, and their open streams
"""
