"""What asyncio does not have, and several layers need. Nothing here knows a log or a node.

call_time         how much of the event loop's time a call uses
group_tasks       tasks of a group that may be shutting down; its error as one
keyed_timers      timers by key: setting one again replaces it
offset_waiters    futures that are done once an offset is reached
standard_streams  descriptors 0 to 2, which no event loop may get
timeouts          `asyncio.timeout`, in a task that has been cancelled before too
"""
