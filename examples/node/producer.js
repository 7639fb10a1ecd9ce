// Writes each line of standard input as a record.
import { createInterface } from 'node:readline';

import { connect, Deadline } from './client/connection.js';
import { options } from './client/options.js';
import { Producer } from './client/producer.js';

const linesPerRequest = 500;
const { servers, names: [topic] } = options('node producer.js [--servers ADDRESSES] TOPIC', 1);
const clients = connect(servers);
const producer = new Producer(clients);
let records = [];
let written = 0;

async function publish() {
  await producer.publish(topic, records, new Deadline(60_000));
  written += records.length;
  records = [];
}

for await (const line of createInterface({ input: process.stdin })) {
  records.push({ value: Buffer.from(line) });
  if (records.length === linesPerRequest) await publish();
}
if (records.length) await publish();
console.log(`${written} records written`);
clients.close();
