"""What the pages share.

layout, page        the frame of a page; a page and its life
table_view, tables  a table that is sorted, filtered and paged on the server: as pure functions, and on a page
live_list           items with controls that come, change and go
charts, formats     charts; numbers, sizes and times as text
actions             a change of the cluster: confirmed, run, its result shown
"""
