"""Alarms: rules over the console's samples, and notifications about what they find.

    rules           a rule and its kinds; the default rules
    settings/       the file of rules and channels
    conditions/     rule + sample -> the subjects that breach it, and those that are unknown
    evaluation      pending -> firing -> resolved: a pure function of states, assessments and the time that passed
    messages        what pages, events and notifications say about an alarm
    book            the alarms, silences and events, in memory and in the database
    store           their tables
    syncs           sync latency, from the nodes' /metrics
    engine          the task that does all this after each sample
    notify/         channels: webhooks and mail, secrets, retries
    deliveries      a notice on its way; durations: as text

An alarm is one rule and one subject (`node 2`, `group billing topic orders`). Its state is stored before its
notification is sent: a console that is restarted does not fire again. A notification that was under way is sent again,
with the same id (at least once). What cannot be seen (a node or coordinator that did not answer) neither fires nor
resolves. Durations are measured by the monotonic clock between samples; the wall clock is for display.
"""
