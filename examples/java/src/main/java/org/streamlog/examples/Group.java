package org.streamlog.examples;

import io.grpc.ManagedChannel;
import java.util.ArrayList;
import java.util.List;
import org.streamlog.v1.ConsumeAcknowledgement;
import org.streamlog.v1.ConsumeJoin;
import org.streamlog.v1.OffsetReset;
import org.streamlog.v1.PartitionRecords;
import org.streamlog.v1.ReceivedRecord;

/**
 * Reads a topic as a member of a group and prints the records. Start it several times and stop some with Ctrl-C: the members share the
 * partitions, and each record is read from the committed offsets on.
 */
public final class Group {
  private Group() {}

  public static void main(String[] arguments) throws Exception {
    Options options = new Options("Group [--servers ADDRESSES] [--count N] TOPIC GROUP", 2, arguments);
    ManagedChannel channel = Connection.connect(options.servers());
    ConsumeJoin join =
        ConsumeJoin.newBuilder()
            .setGroup(options.get(1))
            .addTopics(options.get(0))
            .setOffsetReset(OffsetReset.OFFSET_RESET_EARLIEST)
            .setClientId("java-group")
            .build();
    Member member = new Member(channel, join);
    Stop stop = new Stop();
    for (int read = 0; !stop.requested() && (options.count() == 0 || read < options.count()); ) {
      List<ConsumeAcknowledgement> processed = new ArrayList<>();
      for (PartitionRecords part : member.poll(new Deadline(1_000)).records) {
        for (ReceivedRecord record : part.getRecordsList()) {
          System.out.printf(
              "%s-%d@%d %s%n", part.getTopic(), part.getPartition(), record.getOffset(), record.getValue().toStringUtf8());
        }
        read += part.getRecordsCount();
        processed.add(
            ConsumeAcknowledgement.newBuilder()
                .setTopic(part.getTopic())
                .setPartition(part.getPartition())
                .setOffset(part.getRecords(part.getRecordsCount() - 1).getOffset())
                .build());
      }
      member.commit(processed, new Deadline(30_000));
    }
    member.leave(new Deadline(10_000));
    channel.shutdownNow();
    stop.done();
  }
}
