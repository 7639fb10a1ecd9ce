"""`streamlogctl pipeline`: list, settings, run. The pipelines are in streamlog.spark.pipelines."""

from __future__ import annotations

import click

from streamlog.cli.common.nouns import Noun, key_values
from streamlog.cli.common.output import Output, Row, output_option, show_rows
from streamlog.cli.common.target import Target, cluster_options
from streamlog.spark.failures import StreamlogSparkError
from streamlog.spark.pipelines.running import PIPELINES, load
from streamlog.spark.pipelines.running import run as run_pipeline

_name = click.argument("name", metavar="NAME", type=click.Choice(list(PIPELINES)))


@click.group(cls=Noun)
def pipeline() -> None:
    """Spark pipelines that ship: list them, see their settings, run one.

    They need pyspark: pip install 'streamlog[spark]'.
    """


@pipeline.command("list")
@output_option
def list_(output: Output) -> None:
    """List the pipelines.

    \b
    Example:
      streamlogctl pipeline list
    """
    rows: list[Row] = [{"name": one.name, "description": one.doc} for one in PIPELINES.values()]
    show_rows(output, rows, columns=("name", "description"))


@pipeline.command
@_name
@output_option
def settings(output: Output, name: str) -> None:
    """Show the settings of a pipeline, for --conf.

    \b
    Example:
      streamlogctl pipeline settings archive
    """
    try:
        table = load(name).SETTINGS
    except StreamlogSparkError as error:
        raise click.ClickException(f"{error}.") from None
    rows: list[Row] = [
        {"setting": one.name, "default": "(required)" if one.default is None else one.default, "description": one.doc}
        for one in table
    ]
    show_rows(output, rows, columns=("setting", "default", "description"))


@pipeline.command
@_name
@click.option("--conf", "confs", metavar="KEY=VALUE", multiple=True, help="A setting; can be repeated.")
@cluster_options
def run(target: Target, name: str, confs: tuple[str, ...]) -> None:
    """Run a pipeline here until Ctrl-C or SIGTERM, or until it is done; a next run resumes from its checkpoint.

    'streamlogctl pipeline list' has the names, 'streamlogctl pipeline settings NAME' what can be set with --conf;
    besides, settings of Spark (spark.master, local[*] by default) and, as streamlog.*, of the clients.

    \b
    Example:
      streamlogctl pipeline run archive --conf topics=orders --conf path=archive --conf checkpoint=state
    """
    given = key_values(confs, "--conf")
    of_file = {name: str(value) for name, value in target.settings.items() if name != "bootstrap.servers"}
    clients = {f"streamlog.{name}": text for name, text in of_file.items()}
    try:
        run_pipeline(
            name,
            {"bootstrap.servers": ",".join(target.servers), **clients, **given},
            lambda line: click.echo(line, err=True),
        )
    except StreamlogSparkError as error:
        raise click.ClickException(f"{str(error).rstrip('.')}.") from None
