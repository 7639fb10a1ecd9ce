package org.streamlog.examples;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import java.util.List;
import java.util.Locale;
import org.streamlog.v1.ConsumeJoin;
import org.streamlog.v1.IsolationLevel;
import org.streamlog.v1.OffsetReset;
import org.streamlog.v1.OffsetToCommit;
import org.streamlog.v1.PartitionRecords;
import org.streamlog.v1.PublishRecord;
import org.streamlog.v1.PublishStreamRequest;
import org.streamlog.v1.ReceivedRecord;
import org.streamlog.v1.TransactionEnd;
import org.streamlog.v1.TransactionOffsets;
import org.streamlog.v1.TransactionOutcome;

/**
 * Copies a topic to another one, in upper case, each record exactly once. The records and the offsets that they were read at are one
 * transaction.
 */
public final class ExactlyOnce {
  private ExactlyOnce() {}

  public static void main(String[] arguments) throws Exception {
    String usage = "ExactlyOnce [--servers ADDRESSES] [--transactional-id ID] [--count N] FROM TO GROUP";
    Options options = new Options(usage, 3, arguments);
    ManagedChannel channel = Connection.connect(options.servers());
    // Before the first record is read: a transaction of an earlier copy ends, and its offsets with it.
    String id = options.get("transactional-id", "upper-1");
    Transactions transactions = new Transactions(channel, id, 60_000, new Deadline(60_000));
    ConsumeJoin join =
        ConsumeJoin.newBuilder()
            .setGroup(options.get(2))
            .addTopics(options.get(0))
            .setOffsetReset(OffsetReset.OFFSET_RESET_EARLIEST)
            .setIsolationLevel(IsolationLevel.ISOLATION_LEVEL_READ_COMMITTED)
            .setClientId("java-exactly-once")
            .build();
    Member member = new Member(channel, join);
    Stop stop = new Stop();
    int copied = 0;
    while (!stop.requested() && (options.count() == 0 || copied < options.count())) {
      List<PartitionRecords> parts = member.poll(new Deadline(1_000)).records;
      if (parts.isEmpty()) {
        continue;
      }
      PublishStreamRequest.Builder request =
          PublishStreamRequest.newBuilder().setTopic(options.get(1)).setEnd(TransactionEnd.TRANSACTION_END_COMMIT);
      TransactionOffsets.Builder offsets = TransactionOffsets.newBuilder().setGroup(options.get(2)).setMember(member.identity());
      for (PartitionRecords part : parts) {
        for (ReceivedRecord record : part.getRecordsList()) {
          PublishRecord.Builder made = PublishRecord.newBuilder();
          if (record.hasKey()) {
            made.setKey(record.getKey());
          }
          made.setValue(ByteString.copyFromUtf8(record.getValue().toStringUtf8().toUpperCase(Locale.ROOT)));
          request.addRecords(made);
        }
        offsets.addOffsets(
            OffsetToCommit.newBuilder()
                .setTopic(part.getTopic())
                .setPartition(part.getPartition())
                .setOffset(part.getRecords(part.getRecordsCount() - 1).getOffset() + 1));
      }
      Transactions.Ended ended = transactions.write(request.addOffsets(offsets).build(), new Deadline(60_000));
      if (ended.outcome() == TransactionOutcome.TRANSACTION_OUTCOME_COMMITTED) {
        copied += request.getRecordsCount();
        continue;
      }
      // The member has lost its partitions, and the offsets were refused: read again from the committed ones.
      System.err.println("aborted: " + ended.error().getMessage());
      member.leave(new Deadline(10_000));
      member = new Member(channel, join);
    }
    member.leave(new Deadline(10_000));
    transactions.close();
    channel.shutdownNow();
    System.out.println(copied + " records copied");
    stop.done();
  }
}
