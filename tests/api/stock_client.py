"""A client that has nothing of streamlog but its proto files: run in a process of its own by test_stock_clients.

stock_client.py ADDRESS      with the generated stubs on the path
"""

from __future__ import annotations

import sys

import grpc
from google.rpc import error_details_pb2, status_pb2
from streamlog.v1 import cluster_pb2, cluster_pb2_grpc, records_pb2, records_pb2_grpc


def main() -> None:
    with grpc.insecure_channel(sys.argv[1]) as channel:
        cluster = cluster_pb2_grpc.ClusterStub(channel)
        print(cluster.Describe(cluster_pb2.ClusterDescribeRequest(client_version="stock/1"), timeout=10).version)
        records = records_pb2_grpc.RecordsStub(channel)
        request = records_pb2.PublishRequest(topic="t", records=[records_pb2.PublishRecord(value=b"v1")])
        print([result.offset for result in records.Publish(request, timeout=10).results])
        part = records_pb2.PublishRecord(value=b"v2")
        streamed = records.PublishStream(iter([records_pb2.PublishStreamRequest(records=[part])] * 2), timeout=10)
        print([response.results[0].offset for response in streamed])
        wanted = records_pb2.SubscribePartitions(topic="t", start=records_pb2.StartPosition(offset=0))
        read = records.Subscribe(records_pb2.SubscribeRequest(subscriptions=[wanted]), timeout=10)
        print([record.value for response in read for part in response.partitions for record in part.records])
        try:
            records.Publish(records_pb2.PublishRequest(topic="missing"), timeout=10)
        except grpc.RpcError as error:
            trailers: dict[str, bytes] = dict(error.trailing_metadata())  # type: ignore[arg-type]  # pairs
            status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
            info = error_details_pb2.ErrorInfo()
            status.details[0].Unpack(info)
            print(error.code().name, info.domain, info.reason, info.metadata["address"])


if __name__ == "__main__":
    main()
