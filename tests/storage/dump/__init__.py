"""The reader of files for the dump tool."""
