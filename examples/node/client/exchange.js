// A bidirectional stream that is read like a queue. The node sends a response only for a request or a credit, which bounds it.
import grpc from '@grpc/grpc-js';

export class Exchange {
  #received = [];
  #waiting = null;
  #end = null;

  constructor(stream) {
    this.stream = stream;
    stream.on('data', (response) => {
      this.#received.push(response);
      this.#wake();
    });
    stream.on('error', (error) => this.#finish(error));
    stream.on('end', () => this.#finish(Object.assign(new Error('the stream is closed'), { code: grpc.status.UNAVAILABLE })));
  }

  #finish(error) {
    this.#end ??= error;
    // The status comes after the end of the data, in either order.
    if (error.metadata) this.#end = error;
    setImmediate(() => this.#wake());
  }

  #wake() {
    this.#waiting?.();
    this.#waiting = null;
  }

  /** On a stream that has broken nothing is sent; the next receive has the reason. */
  send(request) {
    if (!this.#end) this.stream.write(request);
  }

  halfClose() {
    this.stream.end();
  }

  cancel() {
    this.stream.cancel();
  }

  /** The next response; null where none comes until the deadline. */
  async receive(deadline) {
    while (!this.#received.length && !this.#end) {
      const left = deadline.left;
      if (!left) return null;
      await new Promise((wake) => {
        const timer = setTimeout(wake, left);
        this.#waiting = () => {
          clearTimeout(timer);
          wake();
        };
      });
    }
    if (this.#received.length) return this.#received.shift();
    throw this.#end;
  }
}
