package org.streamlog.examples;

import java.util.concurrent.TimeUnit;

/** A moment until which attempts are repeated, with a growing pause between them. */
final class Deadline {
  private final long end;
  private int attempt;

  Deadline(long milliseconds) {
    end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
  }

  long millisecondsLeft() {
    return Math.max(0, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime()));
  }

  /** Waits before another attempt; false where no time is left for one. */
  boolean pause() throws InterruptedException {
    long delay = Math.min(50L << Math.min(attempt++, 5), 1000);
    if (delay >= millisecondsLeft()) {
      return false;
    }
    Thread.sleep(delay);
    return true;
  }
}
