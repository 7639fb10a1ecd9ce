package org.streamlog.examples;

import java.util.concurrent.CountDownLatch;

/** Ctrl-C lets the program end its work in order. */
final class Stop {
  private final CountDownLatch done = new CountDownLatch(1);
  private volatile boolean requested;

  Stop() {
    Runtime.getRuntime().addShutdownHook(new Thread(this::request));
  }

  private void request() {
    requested = true;
    try {
      done.await();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  boolean requested() {
    return requested;
  }

  void done() {
    done.countDown();
  }
}
