"""The checks of a run: the history of the clients, the nodes while they run, their replicas at the end."""
