"""`streamlogctl partition reassign`: move replicas to other nodes, show and cancel that, make a plan for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import all_names, matching_topics, node_ids, topic_partition, whole_number
from streamlog.cli.common.output import Output, Row, output_option, say, show_json, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.partition.rebalance import Found, carry_out, look, plan_json, planned
from streamlog.cli.partition.throttle import throttle_option
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import Reassignment
from streamlog.daemon.text_file import read_text
from streamlog.errors import InvalidConfigError
from streamlog.model import INT32_MAX, PartitionId, TopicPartition

_MOVE_COLUMNS: Final = ("partition", "replicas", "adding", "removing", "isr")
_PLAN_BYTES_MAX: Final = 64 << 20


@click.command
@click.argument("partitions", metavar="[TOPIC-PARTITION]...", nargs=-1)
@click.option("--replicas", metavar="1,2,3", help="The new replicas, the preferred leader first.")
@click.option(
    "--reassignment-json-file",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='As Kafka\'s tool: {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.',
)
@click.option("--generate", is_flag=True, help="Only print a plan that spreads TOPIC... evenly over --brokers.")
@click.option("--brokers", metavar="1,2,3", help="With --generate: the nodes; default: all active ones.")
@click.option(
    "--topics-to-move-json-file",
    "topics_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help='With --generate, as Kafka\'s tool: {"topics": [{"topic": "orders"}]}.',
)
@throttle_option
@click.option("--list", "listing", is_flag=True, help="Only list the reassignments in progress.")
@click.option("--cancel", is_flag=True, help="Cancel the reassignments of these partitions.")
@click.option("--wait", is_flag=True, help="Wait until the replicas have moved.")
@output_option
@cluster_options
def reassign(
    target: Target,
    output: Output,
    partitions: tuple[str, ...],
    *,
    replicas: str | None,
    file: str | None,
    generate: bool,
    brokers: str | None,
    topics_file: str | None,
    throttle: int | None,
    listing: bool,
    cancel: bool,
    wait: bool,
) -> None:
    """Move replicas to other nodes. Copying continues in the background.

    --generate prints the present and the proposed assignment as JSON; save the latter in a file, and carry it out with
    --reassignment-json-file. 'streamlogctl cluster rebalance' does this for all topics.

    \b
    Examples:
      streamlogctl partition reassign orders-0 --replicas 1,2,4 --wait
      streamlogctl partition reassign --generate orders --brokers 1,2,4
      streamlogctl partition reassign --reassignment-json-file moves.json --throttle 10000000 --wait
      streamlogctl partition reassign --list
      streamlogctl partition reassign orders-0 --cancel
    """
    if not generate and (brokers is not None or topics_file is not None):
        raise click.UsageError("--brokers and --topics-to-move-json-file need --generate.")
    if generate:
        if replicas is not None or file is not None or cancel or listing or wait or throttle is not None:
            raise click.UsageError("--generate only prints a plan: give topics, --brokers and no other option.")
        _generate(target, output, _topics_to_move(partitions, topics_file), brokers)
        return
    named = [topic_partition(text) for text in partitions]
    if listing:
        _show_moves(target, output, named)
        return
    wanted = _from_file(file, cancel=cancel) if file is not None else _from_options(named, replicas, cancel=cancel)
    if cancel and throttle is not None:
        raise click.UsageError("--throttle is for moves that begin, not for --cancel.")
    wait = wait and not cancel
    done = "Cancelled the move of" if cancel else "Moving"
    results = with_admin(
        target,
        lambda admin: carry_out(
            admin, wanted, wait=wait, throttle=throttle, on_started=lambda at: say(f"{done} {at}.")
        ),
    )
    if wait and any(result.error is None for result in results):
        say("All replicas have moved.")
    end_with((str(result.at), result.error) for result in results)


def _from_options(named: Sequence[TopicPartition], replicas: str | None, *, cancel: bool) -> list[Reassignment]:
    if not named or (replicas is None) != cancel:
        raise click.UsageError("Give partitions, such as orders-0, and --replicas 1,2,3 or --cancel.")
    target = None if replicas is None else node_ids(replicas, "--replicas")
    return [Reassignment(at=at, replicas=target) for at in dict.fromkeys(named)]


def _from_file(path: str, *, cancel: bool) -> list[Reassignment]:
    try:
        document = json.loads(read_text(path, bytes_max=_PLAN_BYTES_MAX))
        found = [
            Reassignment(
                at=TopicPartition(str(one["topic"]), PartitionId(whole_number(one["partition"], 0, INT32_MAX))),
                replicas=None if cancel else _node_list(one["replicas"]),
            )
            for one in document["partitions"]
        ]
    except InvalidConfigError as error:
        raise click.UsageError(f"{error.message}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise click.UsageError(
            f"{path} is not a list of reassignments ({type(problem).__name__}: {problem}): it must look like "
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.'
        ) from None
    if not found:
        raise click.UsageError(f"{path} names no partitions: there is nothing to move or to cancel.")
    return found


def _node_list(given: object) -> list[int]:
    """TypeError, ValueError. A text is iterable, too: "12" would be nodes 1 and 2."""
    if not isinstance(given, list):
        raise TypeError(f"{given!r} is not a list of nodes")
    return [whole_number(node, 0, INT32_MAX) for node in given]


def _show_moves(target: Target, output: Output, named: Sequence[TopicPartition]) -> None:
    found = with_admin(target, lambda admin: admin.list_partition_reassignments(named))
    rows: list[Row] = [
        {
            "partition": f"{one.topic}-{one.partition.partition}",
            "replicas": one.partition.replicas,
            "adding": one.partition.adding,
            "removing": one.partition.removing,
            "isr": one.partition.isr,
        }
        for one in found
    ]
    if rows or output is Output.JSON:
        show_rows(output, rows, columns=_MOVE_COLUMNS)
    else:
        say("There are no reassignments in progress.")


def _topics_to_move(names: Sequence[str], file: str | None) -> list[str]:
    """UsageError."""
    found = all_names(names, (), required=False)
    if file is not None:
        try:
            document = json.loads(read_text(file, bytes_max=_PLAN_BYTES_MAX))
            found += [str(one["topic"]) for one in document["topics"]]
        except InvalidConfigError as error:
            raise click.UsageError(f"{error.message}.") from None
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise click.UsageError(
                f"{file} is not a list of topics ({type(problem).__name__}: {problem}): it must look like "
                '{"topics": [{"topic": "orders"}]}.'
            ) from None
    if not found:
        raise click.UsageError("Give topics, such as orders, or --topics-to-move-json-file FILE.")
    return list(dict.fromkeys(found))


def _generate(target: Target, output: Output, topics: Sequence[str], brokers: str | None) -> None:
    chosen = None if brokers is None else node_ids(brokers, "--brokers")

    async def work(admin: AsyncAdmin) -> tuple[Found, list[str]]:
        named = await matching_topics(admin, topics)
        for one in await admin.describe_topics(named):
            if one.error is not None:
                raise one.error
        return await look(admin, chosen), named

    found, named = with_admin(target, work)
    movable = sorted(at for at in found.current if at.topic in named)
    after = {one.at: one.after for one in planned(found, movable)}
    current = plan_json([(at, found.current[at]) for at in movable])
    proposed = plan_json([(at, after.get(at, found.current[at])) for at in movable])
    if output is Output.JSON:
        show_json({"current": current, "proposed": proposed})
        return
    say("Current partition replica assignment")
    say(json.dumps(current))
    say()
    say("Proposed partition reassignment configuration")
    say(json.dumps(proposed))
