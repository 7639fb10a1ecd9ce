"""try.py SERVER TOPIC: creates a topic, writes three records and reads them back."""

import sys

import grpc
from streamlog_proto.v1 import admin_pb2, admin_pb2_grpc, common_pb2, records_pb2, records_pb2_grpc

server, topic = sys.argv[1:]
with grpc.insecure_channel(server) as channel:
    new = admin_pb2.NewTopic(name=topic, partitions=1)
    created = admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[new]), timeout=60)
    assert not created.results[0].HasField("error"), created
    records = records_pb2_grpc.RecordsStub(channel)
    written = [records_pb2.PublishRecord(value=value) for value in (b"one", b"two", b"three")]
    records.Publish(records_pb2.PublishRequest(topic=topic, records=written), timeout=60)
    reading = records_pb2.SubscribePartitions(
        topic=topic,
        start=records_pb2.StartPosition(bound=common_pb2.OFFSET_BOUND_EARLIEST),
        end=records_pb2.EndPosition(bound=common_pb2.OFFSET_BOUND_LATEST),
    )
    responses = records.Subscribe(records_pb2.SubscribeRequest(subscriptions=[reading]), timeout=60)
    parts = [part for response in responses for part in response.partitions]
    print(*(record.value.decode() for part in parts for record in part.records))
