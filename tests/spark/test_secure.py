"""Source and sink over TLS, as a user with a password who may do what docs/spark.md says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from pyspark.errors import PySparkException

from streamlog.access.acl import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from streamlog.client import EARLIEST, Consumer, Producer
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.conftest import SETTINGS
from tests.spark.records import WITHIN_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

USER = "reporter"
VALUES = [b"%d" % number for number in range(20)]
RIGHTS = [
    (AclResourceType.TOPIC, "in", PatternType.LITERAL, AclOperation.READ),
    (AclResourceType.TOPIC, "out", PatternType.LITERAL, AclOperation.WRITE),
    (AclResourceType.TRANSACTIONAL_ID, "spark-sink/", PatternType.PREFIXED, AclOperation.WRITE),
    (AclResourceType.TOPIC, "__spark_sinks", PatternType.LITERAL, AclOperation.CREATE),
    (AclResourceType.TOPIC, "__spark_sinks", PatternType.LITERAL, AclOperation.READ),
    (AclResourceType.TOPIC, "__spark_sinks", PatternType.LITERAL, AclOperation.WRITE),
]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("secure"), 1, SETTINGS, secure=True) as running:
        running.create_topic("in", partitions=2)
        running.create_topic("out", partitions=2)
        yield running


def test_a_user_reads_and_writes_over_tls(spark: SparkSession, secure: InProcessCluster, tmp_path: Path) -> None:
    password = secure.with_admin(lambda admin: admin.create_user(USER))
    acls = [
        Acl(
            resource_type=kind,
            name=name,
            pattern_type=pattern,
            principal=f"User:{USER}",
            operation=operation,
            permission=AclPermission.ALLOW,
        )
        for kind, name, pattern, operation in RIGHTS
    ]
    secure.with_admin(lambda admin: admin.create_acls(acls))
    with Producer(secure.client_settings()) as producer:
        for value in VALUES:
            producer.send("in", value, partition=int(value) % 2)
    secrets = tmp_path / "secrets.properties"
    secrets.touch(mode=0o600)
    secrets.write_text(f"password={password}\n")
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.username": USER,
        "sasl.password": f"${{file:{secrets}:password}}",
        "config.providers": "file",
    }
    client = {**secure.client_settings("spark"), **login}
    options = {f"streamlog.{name}": value for name, value in client.items()}

    read = spark.read.format("streamlog").options(**options, subscribe="in").load()
    assert sorted(bytes(row.value) for row in read.select("value").collect()) == sorted(VALUES)

    stream = spark.readStream.format("streamlog").options(**options, subscribe="in", startingOffsets="earliest").load()
    writer = stream.select("value").writeStream.format("streamlog").options(**options, topic="out")
    query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    assert sorted(values_in(secure, "out", len(VALUES))) == sorted(VALUES)

    with pytest.raises(PySparkException, match="secret"):
        spark.read.format("streamlog").options(**options, subscribe="secret").load().collect()


def values_in(cluster: InProcessCluster, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with Consumer({**cluster.client_settings(), "isolation.level": "read_committed"}) as consumer:
        consumer.assign(dict.fromkeys([(topic, 0), (topic, 1)], EARLIEST))
        while len(found) < count:
            records = consumer.poll(timeout_s=WITHIN_S)
            assert records, f"{len(found)} of {count} records"
            found += [record.value or b"" for record in records]
    return found
