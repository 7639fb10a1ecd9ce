"""The simulated disk.

image, inode    the page-cache model
filesystem      the files of one computer
disk            the port on them
"""
