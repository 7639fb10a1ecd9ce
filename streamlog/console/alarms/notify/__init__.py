"""Notifications: what each kind of channel is sent, and how it is delivered.

secrets      ${env:NAME} and ${file:/path} -> their values, when a notification is sent
requests     a notice -> the HTTP request of a webhook, of Slack, DingTalk, WeCom: pure
mail         a notice -> a mail, by SMTP
senders      sends one notice to one channel; `DeliveryError` with a reason that has no secret
notifier     the bounded queue: retries with backoff, until delivered or given up
"""
