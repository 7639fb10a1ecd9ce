"""Messages that carry records: produce, fetch, publish, subscribe and consume, a module for each method of that name.

publish_transactions    the fields of a transactional PublishStream
"""
