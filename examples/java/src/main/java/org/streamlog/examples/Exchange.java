package org.streamlog.examples;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** A bidirectional stream with blocking reads. The node sends a response only for a request or a credit, which bounds the queue. */
final class Exchange<Q, R> {
  private final BlockingQueue<Object> received = new LinkedBlockingQueue<>();
  private final ClientCallStreamObserver<Q> requests;
  private StatusRuntimeException end;

  Exchange(Function<StreamObserver<R>, StreamObserver<Q>> method) {
    requests =
        (ClientCallStreamObserver<Q>)
            method.apply(
                new ClientResponseObserver<Q, R>() {
                  @Override
                  public void beforeStart(ClientCallStreamObserver<Q> stream) {}

                  @Override
                  public void onNext(R response) {
                    received.add(response);
                  }

                  @Override
                  public void onError(Throwable error) {
                    received.add(error instanceof StatusRuntimeException known ? known : Status.fromThrowable(error).asRuntimeException());
                  }

                  @Override
                  public void onCompleted() {
                    received.add(Status.UNAVAILABLE.withDescription("the stream is closed").asRuntimeException());
                  }
                });
  }

  /** On a stream that has broken nothing is sent; the next receive has the reason. */
  void send(Q request) {
    if (end == null) {
      try {
        requests.onNext(request);
      } catch (IllegalStateException closed) {
        // The reason comes from receive.
      }
    }
  }

  void halfClose() {
    try {
      requests.onCompleted();
    } catch (IllegalStateException closed) {
      // As above.
    }
  }

  /** The next response; null where none comes within this time. */
  @SuppressWarnings("unchecked")
  R receive(long milliseconds) throws InterruptedException {
    if (end != null) {
      throw end;
    }
    Object next = received.poll(milliseconds, TimeUnit.MILLISECONDS);
    if (next instanceof StatusRuntimeException error) {
      end = error;
      throw error;
    }
    return (R) next;
  }

  void cancel() {
    requests.cancel("closed by the client", null);
  }
}
