// Writes with an idempotence token: a request that got no response is sent again with the same token, and the records are in the
// log once. One request at a time.
import { call, mayRepeat } from './connection.js';

export class Producer {
  #token = null;

  constructor(clients) {
    this.clients = clients;
  }

  /** Repeats what may be repeated until the deadline. */
  async publish(topic, records, deadline) {
    for (;;) {
      try {
        this.#token ??= (await call(this.clients.batches, 'initProducerId', {}, deadline)).producerToken;
        const request = { topic, records, producerToken: this.#token };
        const response = await call(this.clients.records, 'publish', request, deadline);
        this.#token = response.producerToken;
        return response.results;
      } catch (error) {
        if (mayRepeat(error) && (await deadline.pause())) continue;
        this.#token = null; // records may be written: with the same token the next ones would pass for them
        throw error;
      }
    }
  }
}
