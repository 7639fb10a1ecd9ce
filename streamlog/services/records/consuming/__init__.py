"""Records.Consume: membership in a consumer group for clients without a library.

consume           the method, and one call of it
consume_member    the member that this node is on behalf of the client
sent_records      what was sent and is not yet acknowledged
consume_status    what a call waits for, and why
"""
