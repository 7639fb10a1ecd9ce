package org.streamlog.examples;

import org.streamlog.v1.StreamlogError;

/** An error of a partition in a response that is otherwise OK. */
final class Refused extends RuntimeException {
  final StreamlogError error;

  Refused(StreamlogError error) {
    super(error.getCode() + ": " + error.getMessage());
    this.error = error;
  }
}
