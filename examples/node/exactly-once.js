// Copies a topic to another one, in upper case, each record exactly once. The records and the offsets that they were read at are one
// transaction.
import { connect, Deadline } from './client/connection.js';
import { Member } from './client/member.js';
import { options, stopRequested } from './client/options.js';
import { Transactions } from './client/transactions.js';

const usage = 'node exactly-once.js [--servers ADDRESSES] [--transactional-id ID] [--count N] FROM TO GROUP';
const { servers, count, id, names: [from, to, group] } = options(usage, 3);
const clients = connect(servers);
// Before the first record is read: a transaction of an earlier copy ends, and its offsets with it.
const transactions = await new Transactions(clients, id, 60_000).begin(new Deadline(60_000));
const join = {
  group,
  topics: [from],
  offsetReset: 'OFFSET_RESET_EARLIEST',
  isolationLevel: 'ISOLATION_LEVEL_READ_COMMITTED',
  clientId: 'node-exactly-once',
};
let member = new Member(clients, join);
const stop = stopRequested();
let copied = 0;
while (!stop() && (!count || copied < count)) {
  const parts = (await member.poll(new Deadline(1_000))).records;
  if (!parts.length) continue;
  const records = parts
    .flatMap((part) => part.records)
    .map(({ key, value }) => ({ ...(key && { key }), value: Buffer.from(value.toString().toUpperCase()) }));
  const offsets = parts.map(({ topic, partition, records: read }) => ({ topic, partition, offset: read.at(-1).offset + 1 }));
  const request = { topic: to, records, offsets: [{ group, member: member.identity, offsets }], end: 'TRANSACTION_END_COMMIT' };
  const { outcome, error } = await transactions.write(request, new Deadline(60_000));
  if (outcome === 'TRANSACTION_OUTCOME_COMMITTED') {
    copied += records.length;
    continue;
  }
  // The member has lost its partitions, and the offsets were refused: read again from the committed ones.
  console.error(`aborted: ${error.message}`);
  await member.leave(new Deadline(10_000));
  member = new Member(clients, join);
}
await member.leave(new Deadline(10_000));
transactions.close();
clients.close();
console.log(`${copied} records copied`);
