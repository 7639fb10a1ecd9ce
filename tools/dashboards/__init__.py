"""The dashboards of deploy/grafana: `cluster`, `topic`, `group` and `node` say what they show, in the terms of `page`;
`drawing` makes Grafana's JSON of it.
"""
