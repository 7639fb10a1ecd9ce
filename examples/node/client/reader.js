// Reads one partition from a position to its present end. A stream that breaks is opened again where it was.
import { mayRepeat, Refused } from './connection.js';

export async function readToEnd(clients, topic, partition, start, isolationLevel, deadline) {
  const records = [];
  let position = 0;
  for (;;) {
    const subscriptions = [{ topic, partitions: [partition], start, end: { bound: 'OFFSET_BOUND_LATEST' } }];
    const stream = clients.records.subscribe({ subscriptions, isolationLevel }, { deadline: deadline.date() });
    try {
      for await (const response of stream) {
        for (const part of response.partitions) {
          if (part.error) throw new Refused(part.error);
          records.push(...part.records);
          position = part.position;
          start = { offset: position };
        }
      }
      return { records, position };
    } catch (error) {
      stream.cancel();
      if (!mayRepeat(error) || !(await deadline.pause())) throw error;
    }
  }
}
