"""Small files: formats, replacement, deletion."""
