"""A dashboard's JSON, made by Grafana's own library."""

from __future__ import annotations

import string
from typing import Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, Threshold, ThresholdsMode, VariableRefresh

from tools.dashboards.page import Chart, Number, Page

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH: Final = 24  # of Grafana's grid


def _thresholds(number: Number) -> dashboard.ThresholdsConfig:
    if number.alarm_from is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=number.alarm_from, color="red")]
    elif number.alarm_below is not None:
        steps = [Threshold(value=None, color="red"), Threshold(value=number.alarm_below, color="green")]
    else:
        steps = [Threshold(value=None, color="text")]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _number(number: Number, width: int) -> stat.Panel:
    return (
        stat.Panel()
        .title(number.title)
        .description(number.help)
        .datasource(_SOURCE)
        .unit(number.unit)
        .color_mode(BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(number))
        .with_target(prometheus.Dataquery().ref_id("A").expr(number.expression).instant())
        .span(width)
        .height(4)
    )


def _chart(chart: Chart) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(chart.title)
        .description(chart.help)
        .datasource(_SOURCE)
        .unit(chart.unit)
        .fill_opacity(8)
        .span(_WIDTH // 2)
        .height(8)
    )
    if not chart.may_be_negative:
        panel = panel.min(0)
    for reference, query in zip(string.ascii_uppercase, chart.queries, strict=False):
        target = prometheus.Dataquery().ref_id(reference).expr(query.expression).legend_format(query.legend)
        panel = panel.with_target(target)
    return panel


def text_of(page: Page) -> str:
    built = (
        dashboard.Dashboard(page.title)
        .uid(f"streamlog-{page.name}")
        .description(page.help)
        .tags(["streamlog"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for choice in page.choices:
        built = built.with_variable(
            dashboard.QueryVariable(choice.name)
            .label(choice.name)
            .datasource(_SOURCE)
            .query(f"label_values({choice.metric}, {choice.label})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    for section in page.sections:
        built = built.with_row(dashboard.Row(section.title))
        for number in section.numbers:
            built = built.with_panel(_number(number, _WIDTH // len(section.numbers)))
        for chart in section.charts:
            built = built.with_panel(_chart(chart))
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"
