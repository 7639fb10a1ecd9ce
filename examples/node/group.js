// Reads a topic as a member of a group and prints the records. Start it several times and stop some with Ctrl-C: the members share
// the partitions, and each record is read from the committed offsets on.
import { connect, Deadline } from './client/connection.js';
import { Member } from './client/member.js';
import { options, stopRequested } from './client/options.js';

const { servers, count, names: [topic, group] } = options('node group.js [--servers ADDRESSES] [--count N] TOPIC GROUP', 2);
const clients = connect(servers);
const member = new Member(clients, { group, topics: [topic], offsetReset: 'OFFSET_RESET_EARLIEST', clientId: 'node-group' });
const stop = stopRequested();
for (let read = 0; !stop() && (!count || read < count); ) {
  const processed = [];
  for (const part of (await member.poll(new Deadline(1_000))).records) {
    for (const record of part.records) console.log(`${part.topic}-${part.partition}@${record.offset} ${record.value}`);
    read += part.records.length;
    processed.push({ topic: part.topic, partition: part.partition, offset: part.records.at(-1).offset });
  }
  await member.commit(processed, new Deadline(30_000));
}
await member.leave(new Deadline(10_000));
clients.close();
