"""One consumer group."""

from __future__ import annotations

from typing import Final

from tools.dashboards.page import Chart, Choice, Number, Page, Query, Section

GROUP: Final = Page(
    "group",
    "streamlog: group",
    "One consumer group: members, lag, how fast it reads.",
    (
        Section(
            "Group",
            numbers=(
                Number("Members", "", 'max(streamlog_group_members{group="$group"})'),
                Number("Lag", "Records behind, all topics.", 'sum(streamlog:group_lag_records{group="$group"})'),
                Number(
                    "Rebalances in an hour",
                    "New epochs of the group.",
                    'sum(changes(streamlog_group_epoch{group="$group"}[1h]))',
                ),
                Number(
                    "Committed a second",
                    "Growth of committed offsets.",
                    'sum(deriv(streamlog_group_committed_offset{group="$group"}[5m]))',
                    "cps",
                ),
            ),
        ),
        Section(
            "Lag",
            charts=(
                Chart(
                    "Lag by topic",
                    "Records between committed offset and high watermark.",
                    "short",
                    (Query('sum by (topic) (streamlog:group_lag_records{group="$group"})', "{{topic}}"),),
                ),
                Chart(
                    "Lag by partition",
                    "The 20 partitions that are furthest behind.",
                    "short",
                    (
                        Query(
                            'topk(20, streamlog:group_lag_records{group="$group"})',
                            "{{topic}}-{{partition}}",
                        ),
                    ),
                ),
                Chart(
                    "Committed a second by topic",
                    "How fast the group reads.",
                    "cps",
                    (
                        Query(
                            'sum by (topic) (deriv(streamlog_group_committed_offset{group="$group"}[5m]))', "{{topic}}"
                        ),
                    ),
                ),
                Chart(
                    "Members",
                    "Members of the group.",
                    "short",
                    (Query('max(streamlog_group_members{group="$group"})', "members"),),
                ),
            ),
        ),
    ),
    (Choice("group", "group", "streamlog_group_members"),),
)
