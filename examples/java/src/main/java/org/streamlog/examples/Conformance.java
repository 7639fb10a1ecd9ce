package org.streamlog.examples;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.streamlog.v1.ClusterDescribeRequest;
import org.streamlog.v1.ClusterGrpc;
import org.streamlog.v1.ConsumeAcknowledgement;
import org.streamlog.v1.ConsumeJoin;
import org.streamlog.v1.IsolationLevel;
import org.streamlog.v1.OffsetBound;
import org.streamlog.v1.OffsetReset;
import org.streamlog.v1.OffsetToCommit;
import org.streamlog.v1.PartitionRecords;
import org.streamlog.v1.PublishRecord;
import org.streamlog.v1.PublishResult;
import org.streamlog.v1.PublishStreamRequest;
import org.streamlog.v1.ReceivedRecord;
import org.streamlog.v1.StartPosition;
import org.streamlog.v1.TopicPartition;
import org.streamlog.v1.TransactionEnd;
import org.streamlog.v1.TransactionOffsets;

/** The driver of the conformance suite (docs/conformance.md): commands as JSON lines on standard input, results on standard output. */
public final class Conformance {
  private final Map<String, IdempotentProducer> producers = new HashMap<>();
  private final Map<String, Transactions> transactions = new HashMap<>();
  private final Map<String, Member> members = new HashMap<>();
  private final Map<String, String> groups = new HashMap<>();
  private ManagedChannel channel;

  public static void main(String[] arguments) throws Exception {
    Conformance driver = new Conformance();
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject command = JsonParser.parseString(line).getAsJsonObject();
      JsonObject answer = new JsonObject();
      answer.add("id", command.get("id"));
      try {
        answer.add("result", driver.run(command, new Deadline(command.get("timeout_ms").getAsLong())));
      } catch (StatusRuntimeException error) {
        answer.add("error", failure(Connection.reason(error), error.getMessage()));
      } catch (Refused error) {
        answer.add("error", failure(error.error.getCode(), error.getMessage()));
      }
      out.println(answer);
      out.flush();
    }
    System.exit(0); // what is still open is cancelled
  }

  private JsonObject run(JsonObject command, Deadline deadline) throws InterruptedException {
    JsonObject result = new JsonObject();
    switch (text(command, "command")) {
      case "connect" -> {
        channel = Connection.connect(text(command, "servers"));
        ClusterDescribeRequest about = ClusterDescribeRequest.newBuilder().setClientVersion("java-conformance").build();
        result.addProperty(
            "version",
            ClusterGrpc.newBlockingStub(channel)
                .withDeadlineAfter(deadline.millisecondsLeft(), TimeUnit.MILLISECONDS)
                .describe(about)
                .getVersion());
      }
      case "produce" -> {
        IdempotentProducer producer =
            producers.computeIfAbsent(text(command, "producer"), name -> new IdempotentProducer(channel));
        JsonArray offsets = new JsonArray();
        for (PublishResult one : producer.publish(text(command, "topic"), toWrite(command), deadline)) {
          offsets.add(offset(text(command, "topic"), one.getPartition(), one.getOffset()));
        }
        result.add("offsets", offsets);
      }
      case "read" -> {
        StartPosition start =
            command.has("start")
                ? StartPosition.newBuilder().setOffset(command.get("start").getAsLong()).build()
                : StartPosition.newBuilder().setBound(OffsetBound.OFFSET_BOUND_EARLIEST).build();
        int partition = command.get("partition").getAsInt();
        Reader reader = Reader.readToEnd(channel, text(command, "topic"), partition, start, isolation(command), deadline);
        JsonArray records = new JsonArray();
        reader.records.forEach(record -> records.add(record(text(command, "topic"), partition, record)));
        result.add("records", records);
        result.addProperty("position", reader.position);
      }
      case "join" -> {
        ConsumeJoin.Builder join =
            ConsumeJoin.newBuilder()
                .setGroup(text(command, "group"))
                .setOffsetReset(OffsetReset.OFFSET_RESET_EARLIEST)
                .setIsolationLevel(isolation(command))
                .setProcessingTimeoutMs(number(command, "processing_timeout_ms"))
                .setClientId("java-conformance")
                .setHeartbeatIntervalMs(500);
        command.getAsJsonArray("topics").forEach(topic -> join.addTopics(topic.getAsString()));
        groups.put(text(command, "member"), text(command, "group"));
        members.put(text(command, "member"), new Member(channel, join.build()));
      }
      case "poll" -> {
        Member.Polled polled = members.get(text(command, "member")).poll(deadline);
        JsonArray records = new JsonArray();
        for (PartitionRecords part : polled.records) {
          part.getRecordsList().forEach(record -> records.add(record(part.getTopic(), part.getPartition(), record)));
        }
        result.add("records", records);
        result.add("assigned", partitions(polled.assigned));
        result.add("revoked", partitions(polled.revoked));
        result.add("lost", partitions(polled.lost));
      }
      case "commit" -> {
        List<ConsumeAcknowledgement> offsets = new ArrayList<>();
        for (OffsetToCommit one : offsets(command)) {
          offsets.add(
              ConsumeAcknowledgement.newBuilder()
                  .setTopic(one.getTopic())
                  .setPartition(one.getPartition())
                  .setOffset(one.getOffset() - 1)
                  .build());
        }
        JsonArray committed = new JsonArray();
        for (ConsumeAcknowledgement one : members.get(text(command, "member")).commit(offsets, deadline)) {
          committed.add(offset(one.getTopic(), one.getPartition(), one.getOffset() + 1));
        }
        result.add("committed", committed);
      }
      case "leave" -> members.remove(text(command, "member")).leave(deadline);
      case "open_transactions" ->
          transactions.put(
              text(command, "producer"),
              new Transactions(channel, text(command, "transactional_id"), number(command, "transaction_timeout_ms"), deadline));
      case "transact" -> {
        Transactions.Ended ended = transactions.get(text(command, "producer")).write(transaction(command), deadline);
        result.addProperty(
            "outcome",
            switch (ended.outcome()) {
              case TRANSACTION_OUTCOME_COMMITTED -> "committed";
              case TRANSACTION_OUTCOME_ABORTED -> "aborted";
              default -> "";
            });
        result.addProperty("refused", ended.error().getDetailsOrDefault("cause_code", ended.error().getCode()));
      }
      default -> throw new IllegalArgumentException("unknown command " + text(command, "command"));
    }
    return result;
  }

  private PublishStreamRequest transaction(JsonObject command) {
    PublishStreamRequest.Builder request =
        PublishStreamRequest.newBuilder().setTopic(text(command, "topic")).addAllRecords(toWrite(command));
    switch (text(command, "end")) {
      case "commit" -> request.setEnd(TransactionEnd.TRANSACTION_END_COMMIT);
      case "abort" -> request.setEnd(TransactionEnd.TRANSACTION_END_ABORT);
      default -> {}
    }
    List<OffsetToCommit> offsets = offsets(command);
    if (!offsets.isEmpty()) {
      String member = text(command, "member");
      request.addOffsets(
          TransactionOffsets.newBuilder()
              .setGroup(groups.get(member))
              .setMember(members.get(member).identity())
              .addAllOffsets(offsets));
    }
    return request.build();
  }

  private static List<PublishRecord> toWrite(JsonObject command) {
    List<PublishRecord> made = new ArrayList<>();
    if (command.has("records")) {
      for (JsonElement element : command.getAsJsonArray("records")) {
        JsonObject record = element.getAsJsonObject();
        PublishRecord.Builder one = PublishRecord.newBuilder();
        if (record.has("key")) {
          one.setKey(ByteString.copyFromUtf8(text(record, "key")));
        }
        if (record.has("partition")) {
          one.setPartition(number(record, "partition"));
        }
        made.add(one.setValue(ByteString.copyFromUtf8(text(record, "value"))).build());
      }
    }
    return made;
  }

  private static List<OffsetToCommit> offsets(JsonObject command) {
    List<OffsetToCommit> made = new ArrayList<>();
    if (command.has("offsets")) {
      for (JsonElement element : command.getAsJsonArray("offsets")) {
        JsonObject one = element.getAsJsonObject();
        made.add(
            OffsetToCommit.newBuilder()
                .setTopic(text(one, "topic"))
                .setPartition(number(one, "partition"))
                .setOffset(one.get("offset").getAsLong())
                .build());
      }
    }
    return made;
  }

  private static JsonObject record(String topic, int partition, ReceivedRecord record) {
    JsonObject made = offset(topic, partition, record.getOffset());
    made.add("key", record.hasKey() ? new JsonPrimitive(record.getKey().toStringUtf8()) : JsonNull.INSTANCE);
    made.addProperty("value", record.getValue().toStringUtf8());
    return made;
  }

  private static JsonObject offset(String topic, int partition, long offset) {
    JsonObject made = new JsonObject();
    made.addProperty("topic", topic);
    made.addProperty("partition", partition);
    made.addProperty("offset", offset);
    return made;
  }

  private static JsonArray partitions(List<TopicPartition> given) {
    JsonArray made = new JsonArray();
    for (TopicPartition one : given) {
      JsonArray pair = new JsonArray();
      pair.add(one.getTopic());
      pair.add(one.getPartition());
      made.add(pair);
    }
    return made;
  }

  private static JsonObject failure(String code, String message) {
    JsonObject made = new JsonObject();
    made.addProperty("code", code);
    made.addProperty("message", message);
    return made;
  }

  private static IsolationLevel isolation(JsonObject command) {
    boolean committed = command.has("read_committed") && command.get("read_committed").getAsBoolean();
    return committed ? IsolationLevel.ISOLATION_LEVEL_READ_COMMITTED : IsolationLevel.ISOLATION_LEVEL_READ_UNCOMMITTED;
  }

  private static String text(JsonObject object, String name) {
    return object.has(name) ? object.get(name).getAsString() : "";
  }

  private static int number(JsonObject object, String name) {
    return object.has(name) ? object.get(name).getAsInt() : 0;
  }
}
