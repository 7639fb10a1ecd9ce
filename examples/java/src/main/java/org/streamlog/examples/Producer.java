package org.streamlog.examples;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.streamlog.v1.PublishRecord;

/** Writes each line of standard input as a record. */
public final class Producer {
  private static final int LINES_PER_REQUEST = 500;

  private Producer() {}

  public static void main(String[] arguments) throws Exception {
    Options options = new Options("Producer [--servers ADDRESSES] TOPIC", 1, arguments);
    ManagedChannel channel = Connection.connect(options.servers());
    IdempotentProducer producer = new IdempotentProducer(channel);
    int written = 0;
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      List<PublishRecord> records = new ArrayList<>();
      for (String line = lines.readLine(); line != null || !records.isEmpty(); line = line == null ? null : lines.readLine()) {
        if (line != null) {
          records.add(PublishRecord.newBuilder().setValue(ByteString.copyFromUtf8(line)).build());
        }
        if (line == null || records.size() == LINES_PER_REQUEST) {
          producer.publish(options.get(0), records, new Deadline(60_000));
          written += records.size();
          records.clear();
        }
      }
    }
    System.out.println(written + " records written");
    channel.shutdownNow();
  }
}
