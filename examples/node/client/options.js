// Arguments of the form [--name value ...] argument ...
import { parseArgs } from 'node:util';

export function options(usage, count) {
  const { values, positionals } = parseArgs({
    options: {
      servers: { type: 'string', default: '127.0.0.1:9092' },
      count: { type: 'string', default: '0' }, // end after so many records; 0: at Ctrl-C
      'transactional-id': { type: 'string', default: 'upper-1' }, // each running copy of a program has its own
    },
    allowPositionals: true,
  });
  if (positionals.length !== count) {
    console.error(`Usage: ${usage}`);
    process.exit(2);
  }
  return { servers: values.servers, count: Number(values.count), id: values['transactional-id'], names: positionals };
}

/** Ctrl-C lets the program end its work in order. */
export function stopRequested() {
  let requested = false;
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => (requested = true));
  return () => requested;
}
