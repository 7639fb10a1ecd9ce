package org.streamlog.examples;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.streamlog.v1.BatchesGrpc;
import org.streamlog.v1.InitProducerIdRequest;
import org.streamlog.v1.PublishRecord;
import org.streamlog.v1.PublishRequest;
import org.streamlog.v1.PublishResponse;
import org.streamlog.v1.PublishResult;
import org.streamlog.v1.RecordsGrpc;

/**
 * Writes with an idempotence token: a request that got no response is sent again with the same token, and the records are in the
 * log once. One request at a time.
 */
final class IdempotentProducer {
  private final ManagedChannel channel;
  private ByteString token = ByteString.EMPTY;

  IdempotentProducer(ManagedChannel channel) {
    this.channel = channel;
  }

  /** Repeats what may be repeated until the deadline. */
  List<PublishResult> publish(String topic, List<PublishRecord> records, Deadline deadline) throws InterruptedException {
    while (true) {
      try {
        if (token.isEmpty()) {
          token =
              BatchesGrpc.newBlockingStub(channel)
                  .withDeadlineAfter(deadline.millisecondsLeft(), TimeUnit.MILLISECONDS)
                  .initProducerId(InitProducerIdRequest.getDefaultInstance())
                  .getProducerToken();
        }
        PublishRequest request =
            PublishRequest.newBuilder().setTopic(topic).addAllRecords(records).setProducerToken(token).build();
        PublishResponse response =
            RecordsGrpc.newBlockingStub(channel)
                .withDeadlineAfter(deadline.millisecondsLeft(), TimeUnit.MILLISECONDS)
                .publish(request);
        token = response.getProducerToken();
        return response.getResultsList();
      } catch (StatusRuntimeException error) {
        if (!Connection.mayRepeat(error) || !deadline.pause()) {
          token = ByteString.EMPTY; // records may be written: with the same token the next ones would pass for them
          throw error;
        }
      }
    }
  }
}
