// The driver of the conformance suite (docs/conformance.md): commands as JSON lines on standard input, results on standard output.
import { createInterface } from 'node:readline';

import { call, connect, Deadline, reason } from './client/connection.js';
import { Member } from './client/member.js';
import { Producer } from './client/producer.js';
import { readToEnd } from './client/reader.js';
import { Transactions } from './client/transactions.js';

let clients;
const producers = new Map();
const transactions = new Map();
const members = new Map();
const groups = new Map();

const toWrite = ({ records = [] }) =>
  records.map(({ key, value, partition }) => ({
    ...(key !== undefined && { key: Buffer.from(key) }),
    ...(partition !== undefined && { partition }),
    value: Buffer.from(value),
  }));
const received = (topic, partition, records) =>
  records.map(({ offset, key, value }) => ({ topic, partition, offset, key: key?.toString() ?? null, value: value?.toString() ?? null }));
const pairs = (partitions) => partitions.map(({ topic, partition }) => [topic, partition]);
const isolation = ({ read_committed: committed }) => (committed ? 'ISOLATION_LEVEL_READ_COMMITTED' : 'ISOLATION_LEVEL_READ_UNCOMMITTED');

const commands = {
  async connect({ servers }, deadline) {
    clients = connect(servers);
    return { version: (await call(clients.cluster, 'describe', { clientVersion: 'node-conformance' }, deadline)).version };
  },

  async produce(command, deadline) {
    const { producer, topic } = command;
    if (!producers.has(producer)) producers.set(producer, new Producer(clients));
    const results = await producers.get(producer).publish(topic, toWrite(command), deadline);
    return { offsets: results.map(({ partition, offset }) => ({ topic, partition, offset })) };
  },

  async read(command, deadline) {
    const { topic, partition, start } = command;
    const from = start === undefined ? { bound: 'OFFSET_BOUND_EARLIEST' } : { offset: start };
    const { records, position } = await readToEnd(clients, topic, partition, from, isolation(command), deadline);
    return { records: received(topic, partition, records), position };
  },

  async join(command) {
    const { member, group, topics, processing_timeout_ms: processingTimeoutMs } = command;
    groups.set(member, group);
    const join = { group, topics, processingTimeoutMs, isolationLevel: isolation(command) };
    members.set(
      member,
      new Member(clients, { ...join, offsetReset: 'OFFSET_RESET_EARLIEST', clientId: 'node-conformance', heartbeatIntervalMs: 500 }),
    );
    return {};
  },

  async poll({ member }, deadline) {
    const { records, assigned, revoked, lost } = await members.get(member).poll(deadline);
    return {
      records: records.flatMap((part) => received(part.topic, part.partition, part.records)),
      assigned: pairs(assigned),
      revoked: pairs(revoked),
      lost: pairs(lost),
    };
  },

  async commit({ member, offsets }, deadline) {
    const wanted = offsets.map(({ topic, partition, offset }) => ({ topic, partition, offset: offset - 1 }));
    const done = await members.get(member).commit(wanted, deadline);
    return { committed: done.map(({ topic, partition, offset }) => ({ topic, partition, offset: offset + 1 })) };
  },

  async leave({ member }, deadline) {
    await members.get(member).leave(deadline);
    members.delete(member);
    return {};
  },

  async open_transactions({ producer, transactional_id: id, transaction_timeout_ms: timeoutMs }, deadline) {
    transactions.set(producer, await new Transactions(clients, id, timeoutMs).begin(deadline));
    return {};
  },

  async transact(command, deadline) {
    const { producer, topic, member, offsets = [], end } = command;
    const request = { topic, records: toWrite(command), ...(end && { end: `TRANSACTION_END_${end.toUpperCase()}` }) };
    if (offsets.length) request.offsets = [{ group: groups.get(member), member: members.get(member).identity, offsets }];
    const { outcome, error } = await transactions.get(producer).write(request, deadline);
    const outcomes = { TRANSACTION_OUTCOME_COMMITTED: 'committed', TRANSACTION_OUTCOME_ABORTED: 'aborted' };
    return { outcome: outcomes[outcome] ?? '', refused: error?.details?.cause_code ?? error?.code ?? '' };
  },
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { id: command.id, result: await commands[command.command](command, new Deadline(command.timeout_ms)) };
  } catch (error) {
    answer = { id: command.id, error: { code: reason(error), message: error.message } };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0); // what is still open is cancelled
