// Member of a consumer group. If its stream breaks it joins again: its partitions are lost, and reading continues after the
// committed offsets.
import { mayRepeat } from './connection.js';
import { Exchange } from './exchange.js';

const creditsAhead = 500;
const key = ({ topic, partition }) => `${topic}/${partition}`;

export class Member {
  /** For offsets that are committed in a transaction. */
  identity = null;
  #stream = null;
  #owned = new Map();
  #ahead = []; // received while a commit was awaited
  #revoked = []; // given up at the next poll

  constructor(clients, join) {
    this.clients = clients;
    this.join = join;
  }

  /**
   * Returns at the first records or change of the assignment, or with nothing at the deadline. Partitions that the previous poll
   * reported as revoked are given up now: commit what was processed of them before.
   */
  async poll(deadline) {
    const polled = { assigned: [], revoked: [], lost: [], records: [] };
    if (this.#revoked.length) this.#stream.send({ released: this.#revoked });
    this.#revoked = [];
    for (;;) {
      try {
        const response = await this.#next(deadline);
        if (!response) return polled;
        this.#take(response, polled);
      } catch (error) {
        this.#lose(polled);
        if (!mayRepeat(error)) throw error;
        if (!(await deadline.pause())) return polled;
      }
      if (!this.#ahead.length && Object.values(polled).some((list) => list.length)) return polled;
    }
  }

  /**
   * Acknowledges records up to and with these offsets, and returns those whose commit is replicated. The others were lost
   * meanwhile; the next poll says so.
   */
  async commit(offsets, deadline) {
    const done = [];
    if (!offsets.length || !this.#stream) return done;
    this.#stream.send({ acknowledgements: offsets });
    while (done.length < offsets.length) {
      let response;
      try {
        response = await this.#stream.receive(deadline);
      } catch {
        return done; // the next poll reports it
      }
      if (!response) return done;
      if (response.committed) {
        const at = response.committed;
        done.push(...offsets.filter((one) => key(one) === key(at) && at.offset > one.offset));
      } else {
        this.#ahead.push(response);
        if (response.lost) return done;
      }
    }
    return done;
  }

  /** What was not committed goes to another member. */
  async leave(deadline) {
    if (!this.#stream) return;
    this.#stream.halfClose();
    try {
      while (await this.#stream.receive(deadline));
    } catch {
      // The node has ended the stream.
    }
    this.#close();
  }

  async #next(deadline) {
    if (this.#ahead.length) return this.#ahead.shift();
    if (!this.#stream) {
      this.#stream = new Exchange(this.clients.records.consume());
      this.#stream.send({ join: this.join, credits: creditsAhead });
    }
    return this.#stream.receive(deadline);
  }

  #take(response, polled) {
    this.identity = response.member;
    switch (response.news) {
      case 'assigned':
        for (const one of response.assigned.partitions) this.#owned.set(key(one), one);
        polled.assigned.push(...response.assigned.partitions);
        break;
      case 'revoked':
        this.#forget(response.revoked.partitions);
        this.#revoked.push(...response.revoked.partitions);
        polled.revoked.push(...response.revoked.partitions);
        break;
      case 'lost':
        this.#forget(response.lost.partitions);
        polled.lost.push(...response.lost.partitions);
        break;
      case 'records':
        if (response.records.records.length) {
          polled.records.push(response.records);
          this.#stream.send({ credits: response.records.records.length });
        }
    }
  }

  #forget(partitions) {
    for (const one of partitions) this.#owned.delete(key(one));
  }

  // The stream is lost, and with it all partitions.
  #lose(polled) {
    this.#close();
    polled.lost.push(...this.#owned.values());
    this.#owned.clear();
    polled.records = []; // they come again
  }

  #close() {
    this.#stream.cancel();
    this.#stream = null;
    this.#ahead = [];
    this.#revoked = [];
    this.identity = null;
  }
}
