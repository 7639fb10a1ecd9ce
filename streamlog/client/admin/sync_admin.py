"""The admin client for programs without an event loop: AsyncAdmin's methods, each of which waits for its result.

    with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3)

Any number of threads may use one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.connection.sync_loop import LoopThread, blocking
from streamlog.client.settings import merged
from streamlog.errors import ClientClosedError


class Admin:
    """Settings as for AsyncAdmin. Open as soon as it is made; `close` it, or use `with`."""

    def __init__(
        self, config: Mapping[str, object] | None = None, *, thread: LoopThread | None = None, **settings: object
    ) -> None:
        """`thread`: a shared one; None: its own."""
        self._client = AsyncAdmin(merged(config, settings))
        self._thread = thread or LoopThread("streamlog-admin")
        try:
            self._thread.call(self._client.start())
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent. On its own thread, as in a finalizer that runs there: without a wait."""
        if self._thread.is_current:
            with suppress(ClientClosedError):  # it is closed already
                self._thread.begin_close(self._client.close())
            return
        with self._thread.closing() as is_open:
            if is_open:
                self._thread.call(self._client.close())

    create_topics = blocking(AsyncAdmin.create_topics)
    create_topic = blocking(AsyncAdmin.create_topic)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    describe_topic = blocking(AsyncAdmin.describe_topic)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    grow_topic = blocking(AsyncAdmin.grow_topic)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    alter_config = blocking(AsyncAdmin.alter_config)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    preview_unclean_election = blocking(AsyncAdmin.preview_unclean_election)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    digest_replicas = blocking(AsyncAdmin.digest_replicas)
    repair_replicas = blocking(AsyncAdmin.repair_replicas)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_node = blocking(AsyncAdmin.describe_node)
    describe_broker_loggers = blocking(AsyncAdmin.describe_broker_loggers)
    alter_broker_loggers = blocking(AsyncAdmin.alter_broker_loggers)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    test_access = blocking(AsyncAdmin.test_access)
    create_user = blocking(AsyncAdmin.create_user)
    rotate_user = blocking(AsyncAdmin.rotate_user)
    delete_user = blocking(AsyncAdmin.delete_user)
    list_users = blocking(AsyncAdmin.list_users)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    drain_node = blocking(AsyncAdmin.drain_node)
    cancel_drain = blocking(AsyncAdmin.cancel_drain)
    drain_progress = blocking(AsyncAdmin.drain_progress)
    unregister_node = blocking(AsyncAdmin.unregister_node)
    add_voter = blocking(AsyncAdmin.add_voter)
    remove_voter = blocking(AsyncAdmin.remove_voter)
    update_metadata_version = blocking(AsyncAdmin.update_metadata_version)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    describe_group = blocking(AsyncAdmin.describe_group)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_records = blocking(AsyncAdmin.delete_records)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    group_lag = blocking(AsyncAdmin.group_lag)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    end_prepared_transaction = blocking(AsyncAdmin.end_prepared_transaction)
    abort_hanging_transaction = blocking(AsyncAdmin.abort_hanging_transaction)
    find_hanging_transactions = blocking(AsyncAdmin.find_hanging_transactions)
