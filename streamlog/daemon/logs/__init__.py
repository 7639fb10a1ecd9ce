"""What a node's process writes about itself.

log_lines        events and messages as lines, of text or of JSON
event_messages   what each event says, and which are warnings or details
log_file         a file of them, rotated by size
library_logs     lines of the libraries
audit_file       the audit log
"""
