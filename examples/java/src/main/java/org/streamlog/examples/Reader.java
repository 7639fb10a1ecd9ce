package org.streamlog.examples;

import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.streamlog.v1.EndPosition;
import org.streamlog.v1.IsolationLevel;
import org.streamlog.v1.OffsetBound;
import org.streamlog.v1.PartitionRecords;
import org.streamlog.v1.ReceivedRecord;
import org.streamlog.v1.RecordsGrpc;
import org.streamlog.v1.StartPosition;
import org.streamlog.v1.SubscribePartitions;
import org.streamlog.v1.SubscribeRequest;
import org.streamlog.v1.SubscribeResponse;

/** Reads one partition from a position to its present end. A stream that breaks is opened again where it was. */
final class Reader {
  final List<ReceivedRecord> records = new ArrayList<>();
  long position;

  static Reader readToEnd(
      ManagedChannel channel, String topic, int partition, StartPosition start, IsolationLevel isolation, Deadline deadline)
      throws InterruptedException {
    Reader reader = new Reader();
    while (true) {
      try {
        SubscribePartitions wanted =
            SubscribePartitions.newBuilder()
                .setTopic(topic)
                .addPartitions(partition)
                .setStart(start)
                .setEnd(EndPosition.newBuilder().setBound(OffsetBound.OFFSET_BOUND_LATEST))
                .build();
        Iterator<SubscribeResponse> responses =
            RecordsGrpc.newBlockingStub(channel)
                .withDeadlineAfter(deadline.millisecondsLeft(), TimeUnit.MILLISECONDS)
                .subscribe(SubscribeRequest.newBuilder().addSubscriptions(wanted).setIsolationLevel(isolation).build());
        while (responses.hasNext()) {
          for (PartitionRecords part : responses.next().getPartitionsList()) {
            if (part.hasError()) {
              throw new Refused(part.getError());
            }
            reader.records.addAll(part.getRecordsList());
            reader.position = part.getPosition();
            start = StartPosition.newBuilder().setOffset(reader.position).build();
          }
        }
        return reader;
      } catch (StatusRuntimeException error) {
        if (!Connection.mayRepeat(error) || !deadline.pause()) {
          throw error;
        }
      }
    }
  }
}
