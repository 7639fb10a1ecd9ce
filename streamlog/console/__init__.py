"""The web console: a process of its own, a plain client of any cluster that it can reach.

    sampling     asks the cluster every few seconds: `Sample`, a value
    rates        two samples -> records and bytes a second, lags: pure
    history      samples kept in SQLite (or another database by URL), downsampled, bounded
    watcher      the task that ties these together, and what the pages read
    server       the HTTP server; `pages/` has one file for each view, `layout` what they share

Pages only read what the watcher has, and call the admin client for what a person asks for. Everything that comes from
the cluster (names, keys, values) is shown as text.
"""
