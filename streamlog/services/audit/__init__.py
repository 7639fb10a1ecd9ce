"""The audit log: who did what, on what, and whether it was allowed. Where it is off, none of it runs.

trail             around every method: what each call says about itself becomes events
audited_methods   the table: which kind of event each method makes
audit_topic       events as records of a topic (audit.log.topic)
"""
