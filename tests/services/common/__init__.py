"""What the services share: admission, bounds of replies, pages."""
