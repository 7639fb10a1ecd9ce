package org.streamlog.examples;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.streamlog.v1.PublishResult;
import org.streamlog.v1.PublishStreamRequest;
import org.streamlog.v1.PublishStreamResponse;
import org.streamlog.v1.RecordsGrpc;
import org.streamlog.v1.StreamlogError;
import org.streamlog.v1.TransactionEnd;
import org.streamlog.v1.TransactionOutcome;
import org.streamlog.v1.TransactionalWriter;

/**
 * Transactions of one transactional id, one after another, on a PublishStream. If the stream breaks, another one is opened with the
 * last token: it says whether the transaction was committed; if not, its requests are sent again.
 */
final class Transactions {
  /** The outcome if a request ended the transaction, and why it was aborted: no error is the default instance. */
  record Ended(TransactionOutcome outcome, StreamlogError error) {}

  private final ManagedChannel channel;
  private final TransactionalWriter writer;
  private final List<PublishStreamRequest> sent = new ArrayList<>(); // of the open transaction
  private boolean broken; // one of them was refused: the transaction can only be aborted
  private ByteString token = ByteString.EMPTY; // of the open transaction, or the next one
  private Exchange<PublishStreamRequest, PublishStreamResponse> stream;

  /** Fences earlier producers with the same id, and aborts what they left open. */
  Transactions(ManagedChannel channel, String id, int timeoutMs, Deadline deadline) throws InterruptedException {
    this.channel = channel;
    writer = TransactionalWriter.newBuilder().setTransactionalId(id).setTimeoutMs(timeoutMs).build();
    while (true) {
      try {
        open(deadline);
        return;
      } catch (StatusRuntimeException error) {
        close();
        if (!Connection.mayRepeat(error) || !deadline.pause()) {
          throw error;
        }
      }
    }
  }

  /**
   * Sends records and offsets as part of the transaction, and ends it if the request has an end. A transaction that was aborted for
   * a passing reason is written again; what its records or offsets were refused for is returned.
   */
  Ended write(PublishStreamRequest request, Deadline deadline) throws InterruptedException {
    sent.add(request);
    while (true) {
      RuntimeException failed;
      try {
        Ended ended = attempt(request, deadline);
        StreamlogError error = ended.error();
        boolean refused = !error.getCode().isEmpty();
        if (!refused || broken || !passing(error)) {
          broken |= refused;
          if (request.getEnd() != TransactionEnd.TRANSACTION_END_UNSPECIFIED) {
            sent.clear();
            broken = false;
          }
          return ended;
        }
        failed = new Refused(error);
      } catch (StatusRuntimeException error) {
        failed = error;
        if (!Connection.mayRepeat(error)) {
          close();
          throw error;
        }
      }
      close(); // an open transaction is aborted
      if (!deadline.pause()) {
        throw failed;
      }
    }
  }

  /** Another attempt may commit. Not one with the offsets of a member that was removed from its group. */
  private static boolean passing(StreamlogError error) {
    String cause = error.getDetailsOrDefault("cause_code", "");
    return !Set.of("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID").contains(cause)
        && (error.getRetriable() || error.getCode().equals("TRANSACTION_ABORTABLE"));
  }

  private Ended attempt(PublishStreamRequest request, Deadline deadline) throws InterruptedException {
    if (stream == null) {
      if (open(deadline) == TransactionOutcome.TRANSACTION_OUTCOME_COMMITTED) {
        return new Ended(TransactionOutcome.TRANSACTION_OUTCOME_COMMITTED, StreamlogError.getDefaultInstance());
      }
      for (PublishStreamRequest earlier : sent.subList(0, sent.size() - 1)) {
        exchange(earlier, deadline);
      }
    }
    PublishStreamResponse response = exchange(request, deadline);
    if (response.getOutcome() == TransactionOutcome.TRANSACTION_OUTCOME_ABORTED
        && request.getEnd() == TransactionEnd.TRANSACTION_END_ABORT) {
      return new Ended(response.getOutcome(), StreamlogError.getDefaultInstance()); // as it was wanted
    }
    StreamlogError error = response.getError();
    for (PublishResult result : response.getResultsList()) {
      if (result.hasError() && (error.getCode().isEmpty() || error.getCode().equals("TRANSACTION_ABORTABLE"))) {
        error = result.getError();
      }
    }
    return new Ended(response.getOutcome(), error);
  }

  private TransactionOutcome open(Deadline deadline) throws InterruptedException {
    stream = new Exchange<>(RecordsGrpc.newStub(channel)::publishStream);
    return exchange(PublishStreamRequest.newBuilder().setTransactional(writer).setProducerToken(token).build(), deadline)
        .getFormerOutcome();
  }

  private PublishStreamResponse exchange(PublishStreamRequest request, Deadline deadline) throws InterruptedException {
    stream.send(request);
    PublishStreamResponse response = stream.receive(deadline.millisecondsLeft());
    if (response == null) {
      throw Status.DEADLINE_EXCEEDED.withDescription("no response within the time that the program allows").asRuntimeException();
    }
    if (!response.getProducerToken().isEmpty()) {
      token = response.getProducerToken();
    }
    return response;
  }

  /** An open transaction is aborted. */
  void close() {
    if (stream != null) {
      stream.cancel();
      stream = null;
    }
  }
}
