// Transactions of one transactional id, one after another, on a PublishStream. If the stream breaks, another one is opened with the
// last token: it says whether the transaction was committed; if not, its requests are sent again.
import grpc from '@grpc/grpc-js';

import { mayRepeat, Refused } from './connection.js';
import { Exchange } from './exchange.js';

// Another attempt may commit. Not one with the offsets of a member that was removed from its group.
const passing = ({ code, retriable, details }) =>
  !['ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID'].includes(details?.cause_code) && (retriable || code === 'TRANSACTION_ABORTABLE');

export class Transactions {
  #stream = null;
  #token = null; // of the open transaction, or the next one
  #sent = []; // requests of the open transaction
  #broken = false; // one of them was refused: the transaction can only be aborted

  constructor(clients, transactionalId, timeoutMs) {
    this.clients = clients;
    this.writer = { transactionalId, timeoutMs };
  }

  /** Fences earlier producers with the same id, and aborts what they left open. */
  async begin(deadline) {
    for (;;) {
      try {
        await this.#open(deadline);
        return this;
      } catch (error) {
        this.close();
        if (!mayRepeat(error) || !(await deadline.pause())) throw error;
      }
    }
  }

  /**
   * Sends records and offsets as part of the transaction, and ends it if the request has an end. A transaction that was aborted for a
   * passing reason is written again; what its records or offsets were refused for is returned.
   */
  async write(request, deadline) {
    this.#sent.push(request);
    for (;;) {
      let failed;
      try {
        const ended = await this.#attempt(request, deadline);
        const { error } = ended;
        if (!error || this.#broken || !passing(error)) {
          this.#broken ||= Boolean(error);
          if (request.end) {
            this.#sent = [];
            this.#broken = false;
          }
          return ended;
        }
        failed = new Refused(error);
      } catch (error) {
        failed = error;
        if (!mayRepeat(error)) {
          this.close();
          throw error;
        }
      }
      this.close(); // an open transaction is aborted
      if (!(await deadline.pause())) throw failed;
    }
  }

  async #attempt(request, deadline) {
    if (!this.#stream) {
      const outcome = await this.#open(deadline);
      if (outcome === 'TRANSACTION_OUTCOME_COMMITTED') return { outcome };
      for (const earlier of this.#sent.slice(0, -1)) await this.#exchange(earlier, deadline);
    }
    const { outcome, results, error } = await this.#exchange(request, deadline);
    if (outcome === 'TRANSACTION_OUTCOME_ABORTED' && request.end === 'TRANSACTION_END_ABORT') return { outcome }; // as it was wanted
    const errors = [error, ...results.map((one) => one.error)].filter(Boolean);
    return { outcome, error: errors.find((one) => one.code !== 'TRANSACTION_ABORTABLE') ?? errors[0] };
  }

  async #open(deadline) {
    this.#stream = new Exchange(this.clients.records.publishStream());
    const first = { transactional: this.writer, producerToken: this.#token ?? Buffer.alloc(0) };
    return (await this.#exchange(first, deadline)).formerOutcome;
  }

  async #exchange(request, deadline) {
    this.#stream.send(request);
    const response = await this.#stream.receive(deadline);
    if (!response) {
      throw Object.assign(new Error('no response within the time that the program allows'), { code: grpc.status.DEADLINE_EXCEEDED });
    }
    if (response.producerToken.length) this.#token = response.producerToken;
    return response;
  }

  /** An open transaction is aborted. */
  close() {
    this.#stream?.cancel();
    this.#stream = null;
  }
}
