package org.streamlog.examples;

import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import org.streamlog.v1.ConsumeAcknowledgement;
import org.streamlog.v1.ConsumeCommitted;
import org.streamlog.v1.ConsumeJoin;
import org.streamlog.v1.ConsumeRequest;
import org.streamlog.v1.ConsumeResponse;
import org.streamlog.v1.GroupMember;
import org.streamlog.v1.PartitionRecords;
import org.streamlog.v1.RecordsGrpc;
import org.streamlog.v1.TopicPartition;

/**
 * Member of a consumer group. If its stream breaks it joins again: its partitions are lost, and reading continues after the
 * committed offsets.
 */
final class Member {
  private static final int CREDITS_AHEAD = 500;

  /** What happened since the last poll. */
  static final class Polled {
    final List<TopicPartition> assigned = new ArrayList<>();
    final List<TopicPartition> revoked = new ArrayList<>();
    final List<TopicPartition> lost = new ArrayList<>();
    final List<PartitionRecords> records = new ArrayList<>();

    private boolean isEmpty() {
      return assigned.isEmpty() && revoked.isEmpty() && lost.isEmpty() && records.isEmpty();
    }
  }

  private final ManagedChannel channel;
  private final ConsumeJoin join;
  private final Set<TopicPartition> owned = new LinkedHashSet<>();
  private final Queue<ConsumeResponse> ahead = new ArrayDeque<>(); // received while a commit was awaited
  private final List<TopicPartition> revoked = new ArrayList<>(); // given up at the next poll
  private Exchange<ConsumeRequest, ConsumeResponse> stream;
  private GroupMember identity = GroupMember.getDefaultInstance();

  Member(ManagedChannel channel, ConsumeJoin join) {
    this.channel = channel;
    this.join = join;
  }

  /** For offsets that are committed in a transaction. */
  GroupMember identity() {
    return identity;
  }

  /**
   * Returns at the first records or change of the assignment, or with nothing at the deadline. Partitions that the previous poll
   * reported as revoked are given up now: commit what was processed of them before.
   */
  Polled poll(Deadline deadline) throws InterruptedException {
    Polled polled = new Polled();
    if (!revoked.isEmpty()) {
      stream.send(ConsumeRequest.newBuilder().addAllReleased(revoked).build());
      revoked.clear();
    }
    while (true) {
      try {
        ConsumeResponse response = next(deadline.millisecondsLeft());
        if (response == null) {
          return polled;
        }
        take(response, polled);
      } catch (StatusRuntimeException error) {
        lose(polled);
        if (!Connection.mayRepeat(error)) {
          throw error;
        }
        if (!deadline.pause()) {
          return polled;
        }
      }
      if (!polled.isEmpty() && ahead.isEmpty()) {
        return polled;
      }
    }
  }

  /**
   * Acknowledges records up to and with these offsets, and returns those whose commit is replicated. The others were lost
   * meanwhile; the next poll says so.
   */
  List<ConsumeAcknowledgement> commit(List<ConsumeAcknowledgement> offsets, Deadline deadline) throws InterruptedException {
    List<ConsumeAcknowledgement> done = new ArrayList<>();
    if (offsets.isEmpty() || stream == null) {
      return done;
    }
    stream.send(ConsumeRequest.newBuilder().addAllAcknowledgements(offsets).build());
    while (done.size() < offsets.size()) {
      ConsumeResponse response;
      try {
        response = stream.receive(deadline.millisecondsLeft());
      } catch (StatusRuntimeException error) {
        return done; // the next poll reports it
      }
      if (response == null) {
        return done;
      }
      if (response.hasCommitted()) {
        ConsumeCommitted at = response.getCommitted();
        for (ConsumeAcknowledgement one : offsets) {
          if (one.getTopic().equals(at.getTopic()) && one.getPartition() == at.getPartition() && at.getOffset() > one.getOffset()) {
            done.add(one);
          }
        }
      } else {
        ahead.add(response);
        if (response.hasLost()) {
          return done;
        }
      }
    }
    return done;
  }

  /** What was not committed goes to another member. */
  void leave(Deadline deadline) throws InterruptedException {
    if (stream == null) {
      return;
    }
    stream.halfClose();
    try {
      while (stream.receive(deadline.millisecondsLeft()) != null) {
        // Until the node has ended the stream.
      }
    } catch (StatusRuntimeException ended) {
      // As it should.
    }
    close();
  }

  private ConsumeResponse next(long milliseconds) throws InterruptedException {
    if (!ahead.isEmpty()) {
      return ahead.remove();
    }
    if (stream == null) {
      stream = new Exchange<>(RecordsGrpc.newStub(channel)::consume);
      stream.send(ConsumeRequest.newBuilder().setJoin(join).setCredits(CREDITS_AHEAD).build());
    }
    return stream.receive(milliseconds);
  }

  private void take(ConsumeResponse response, Polled polled) {
    identity = response.getMember();
    switch (response.getNewsCase()) {
      case ASSIGNED -> {
        owned.addAll(response.getAssigned().getPartitionsList());
        polled.assigned.addAll(response.getAssigned().getPartitionsList());
      }
      case REVOKED -> {
        response.getRevoked().getPartitionsList().forEach(owned::remove);
        revoked.addAll(response.getRevoked().getPartitionsList());
        polled.revoked.addAll(response.getRevoked().getPartitionsList());
      }
      case LOST -> {
        response.getLost().getPartitionsList().forEach(owned::remove);
        polled.lost.addAll(response.getLost().getPartitionsList());
      }
      case RECORDS -> {
        int count = response.getRecords().getRecordsCount();
        if (count > 0) {
          polled.records.add(response.getRecords());
          stream.send(ConsumeRequest.newBuilder().setCredits(count).build());
        }
      }
      default -> {}
    }
  }

  /** The stream is lost, and with it all partitions. */
  private void lose(Polled polled) {
    close();
    polled.lost.addAll(owned);
    owned.clear();
    polled.records.clear(); // they come again
  }

  private void close() {
    stream.cancel();
    stream = null;
    ahead.clear();
    revoked.clear();
    identity = GroupMember.getDefaultInstance();
  }
}
