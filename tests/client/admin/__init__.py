"""AsyncAdmin and Admin."""
