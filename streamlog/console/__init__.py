"""The web console: a separate process, and an ordinary client of any cluster that it can reach.

    collection/  reads the cluster's state every few seconds, computes rates, keeps the history
    browse       reads records for a page, bounded
    guard        the one place where the console changes the cluster; access/ has users, roles, audit
    server       the HTTP server; `pages/` has one file for each view, `widgets/` what they share
    connections  bounds on browsers; tls: the certificate of --tls-cert
    decoding/    keys and values by schemas, in a process of its own
    alarms/      rules over the samples, and notifications
    database_waits  for how long it waits for its database

Pages read what the sampler has, and call the admin client for a user's actions. Everything that comes from the cluster
(names, keys, values) is shown as text.
"""
