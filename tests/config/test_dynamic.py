"""IncrementalAlterConfigs (KIP-339): what may be changed at which resource, and to what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config import Operation, Scope, changed_value, check_together, check_value, node_layers
from streamlog.config.settings.topic_settings import TOPIC
from streamlog.errors import InvalidConfigError

SET, DELETE, APPEND, SUBTRACT = Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT


def refusal(scope: Scope, name: str, operation: Operation, given: str, old: str | None = None) -> InvalidConfigError:
    with pytest.raises(InvalidConfigError) as caught:
        changed_value(scope, name, operation, given, old)
    assert caught.value.details["field"] == name[:100]
    return caught.value


class TestSet:
    @pytest.mark.parametrize(
        ("name", "text", "stored"),
        [
            ("retention.ms", " +0086400000 ", "86400000"),
            ("unclean.leader.election.enable", " TRUE ", "true"),
            ("cleanup.policy", "compact , delete", "compact,delete"),
            ("min.cleanable.dirty.ratio", ".50", "0.5"),
        ],
    )
    def test_the_canonical_text_is_stored(self, name: str, text: str, stored: str) -> None:
        assert changed_value(Scope.TOPIC, name, SET, text, None) == stored
        assert check_value(Scope.TOPIC, name, stored) == stored

    @pytest.mark.parametrize(
        ("name", "text", "message", "limit"),
        [
            ("retention.ms", "-2", "retention.ms='-2': must be in -1..9223372036854775807", "-1.."),
            ("segment.bytes", "7", "segment.bytes='7': must be in 1048576..2147483647", "1048576.."),
            ("segment.index.bytes", "11", "segment.index.bytes='11': must be in 12..2147483647", "12.."),
            (
                "compression.type",
                "none",
                "compression.type='none': must be one of producer, uncompressed, gzip, snappy, lz4, zstd",
                "producer, uncompressed, gzip, snappy, lz4, zstd",
            ),
            ("min.insync.replicas", "0", "min.insync.replicas='0': must be in 1..1000", "1..1000"),
            ("cleanup.policy", "", "cleanup.policy='': must not be empty", "list of: delete, compact; not empty"),
        ],
    )
    def test_out_of_range(self, name: str, text: str, message: str, limit: str) -> None:
        error = refusal(Scope.TOPIC, name, SET, text)
        assert (str(error), error.details["limit"]) == (message, limit)

    @pytest.mark.parametrize(
        ("scope", "name", "message"),
        [
            (Scope.TOPIC, "retention.m", "'retention.m' is not a setting of topics; did you mean retention.ms?"),
            (Scope.TOPIC, "log.retention.ms", "log.retention.ms is a setting of nodes: a topic's is retention.ms"),
            (Scope.ALL_NODES, "retention.ms", "retention.ms is a setting of topics: the nodes' default for it is "
             "log.retention.ms"),
            (Scope.TOPIC, "segment.jitter.ms", "segment.jitter.ms has no effect here. Segments roll by the timestamps "
             "of their records: there is no jitter"),
            (Scope.NODE, "node.id", "node.id cannot be changed while the node runs: set it in "
             "server.properties and restart the node"),
            (Scope.ALL_NODES, "ssl.keystore.key", "ssl.keystore.key cannot be changed while the node runs: set it in "
             "server.properties and restart the node"),
            (Scope.NODE, "log.retention.ms", "log.retention.ms cannot differ between nodes: change it for all nodes"),
        ],
    )  # fmt: skip  # a table
    def test_not_there(self, scope: Scope, name: str, message: str) -> None:
        assert str(refusal(scope, name, SET, "1")) == message

    def test_a_node_s_own_and_all_nodes(self) -> None:
        for scope in (Scope.NODE, Scope.ALL_NODES):
            assert changed_value(scope, "leader.replication.throttled.rate", SET, "1000", None) == "1000"
        assert changed_value(Scope.ALL_NODES, "log.retention.ms", SET, "1000", None) == "1000"


class TestLists:
    @pytest.mark.parametrize(
        ("operation", "given", "old", "stored"),
        [
            (APPEND, "compact", None, "delete,compact"),
            (APPEND, "compact", "compact", "compact"),
            (APPEND, "delete, compact", "compact", "compact,delete"),
            (SUBTRACT, "delete", "compact,delete", "compact"),
            (SUBTRACT, "nothing", "compact", "compact"),
        ],
    )
    def test_append_and_subtract(self, operation: Operation, given: str, old: str | None, stored: str) -> None:
        assert changed_value(Scope.TOPIC, "cleanup.policy", operation, given, old) == stored

    def test_what_may_not_become_empty(self) -> None:
        error = refusal(Scope.TOPIC, "cleanup.policy", SUBTRACT, "delete", None)
        assert str(error) == "subtract 'delete': cleanup.policy='': must not be empty"

    def test_what_may_not_be_in_it(self) -> None:
        error = refusal(Scope.TOPIC, "cleanup.policy", APPEND, "remove", None)
        assert str(error).endswith("item 'remove': must be one of delete, compact")

    def test_what_is_no_list(self) -> None:
        for operation in (APPEND, SUBTRACT):
            error = refusal(Scope.TOPIC, "retention.ms", operation, "1", None)
            assert str(error) == "retention.ms is not a list: set it instead"


def test_what_is_not_set_and_not_known_is_not_deleted() -> None:
    assert changed_value(Scope.TOPIC, "retention.ms", DELETE, "", None) is None
    assert str(refusal(Scope.TOPIC, "retention.mss", DELETE, "", None)).endswith("did you mean retention.ms?")
    assert "nosuchkey" in str(refusal(Scope.ALL_NODES, "nosuchkey", DELETE, "", None))


def test_delete_is_allowed_of_any_name_that_is_set() -> None:
    for name in ("retention.ms", "left.behind.by.a.newer.release"):
        assert changed_value(Scope.TOPIC, name, DELETE, "", "5") is None


class TestTogether:
    def test_own_values(self) -> None:
        check_together(Scope.TOPIC, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
        with pytest.raises(InvalidConfigError) as caught:
            check_together(Scope.TOPIC, {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
        assert str(caught.value) == "min.compaction.lag.ms=6: must be at most max.compaction.lag.ms=5"
        assert caught.value.details["field"] == "min.compaction.lag.ms"

    def test_own_values_against_the_nodes(self) -> None:
        layers = node_layers({"log.cleaner.max.compaction.lag.ms": "5"})
        with pytest.raises(InvalidConfigError, match="must be at most"):
            check_together(Scope.TOPIC, {"min.compaction.lag.ms": "6"}, layers)

    def test_all_nodes(self) -> None:
        check_together(Scope.ALL_NODES, {}, node_layers({}, cluster={"message.max.bytes": "1000"}))
        with pytest.raises(InvalidConfigError, match=r"message\.max\.bytes=4194304: must be at most 4190208"):
            check_together(Scope.ALL_NODES, {}, node_layers({}, cluster={"message.max.bytes": "4194304"}))


@given(
    st.sampled_from([setting.name for setting in TOPIC]) | st.text(max_size=30),
    st.sampled_from(Operation),
    st.text(max_size=20) | st.integers().map(str),
    st.none() | st.text(max_size=20),
)
def test_any_change_gives_what_can_be_stored_or_our_error(
    name: str, operation: Operation, given: str, old: str | None
) -> None:
    try:
        stored = changed_value(Scope.TOPIC, name, operation, given, old)
    except InvalidConfigError as e:
        refused = e
    else:
        assert stored is None or check_value(Scope.TOPIC, name, stored) == stored
        return
    assert "field" in refused.details
