// Connects to a cluster as docs/clients.md says. gRPC balances over all nodes; the code of the protos is generated when they are
// loaded.
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import protobuf from 'protobufjs';
import { dirname, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const protos = resolve(dirname(fileURLToPath(import.meta.url)), '../../../proto');
const options = { longs: Number, enums: String, bytes: Buffer, defaults: true, oneofs: true, includeDirs: [protos] };
const files = ['records', 'batches', 'cluster', 'admin'].map((name) => `streamlog/v1/${name}.proto`);
const { v1 } = grpc.loadPackageDefinition(protoLoader.loadSync(files, options)).streamlog;

// Of google/rpc, what the trailer grpc-status-details-bin holds.
const errors = protobuf.parse(`
  syntax = "proto3";
  package google.rpc;
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message RetryInfo { Duration retry_delay = 1; }
  message Duration { int64 seconds = 1; int32 nanos = 2; }
`).root;

const serviceConfig = {
  loadBalancingConfig: [{ round_robin: {} }],
  methodConfig: [
    {
      name: [
        { service: 'streamlog.v1.Records', method: 'Publish' },
        { service: 'streamlog.v1.Batches', method: 'InitProducerId' },
        { service: 'streamlog.v1.Admin' },
        { service: 'streamlog.v1.Cluster' },
      ],
      waitForReady: true,
      timeout: '30s',
      retryPolicy: {
        maxAttempts: 5,
        initialBackoff: '0.1s',
        maxBackoff: '2s',
        backoffMultiplier: 2,
        retryableStatusCodes: ['UNAVAILABLE'],
      },
    },
    { name: [{ service: 'streamlog.v1.Records' }], waitForReady: true },
  ],
};

/** Takes the addresses of all nodes, separated by commas; returns the clients of the services, over the same connections. */
export function connect(servers) {
  const credentials = grpc.credentials.createInsecure(); // createSsl for SSL:// listeners
  const settings = {
    'grpc.service_config': JSON.stringify(serviceConfig),
    'grpc.keepalive_time_ms': 10_000,
    'grpc.keepalive_timeout_ms': 5_000,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc.initial_reconnect_backoff_ms': 200,
    'grpc.max_reconnect_backoff_ms': 2_000,
  };
  const target = `ipv4:${servers}`;
  const records = new v1.Records(target, credentials, settings);
  const channelOverride = records.getChannel();
  const batches = new v1.Batches(target, credentials, { channelOverride });
  const cluster = new v1.Cluster(target, credentials, { channelOverride });
  return { records, batches, cluster, close: () => records.close() };
}

/** A unary call as a promise. */
export function call(client, method, request, deadline) {
  return new Promise((done, failed) => {
    client[method](request, { deadline: deadline.date() }, (error, response) => (error ? failed(error) : done(response)));
  });
}

/** A moment until which attempts are repeated, with a growing pause between them. */
export class Deadline {
  #attempt = 0;

  constructor(milliseconds) {
    this.end = performance.now() + milliseconds;
  }

  get left() {
    return Math.max(0, this.end - performance.now());
  }

  date() {
    return new Date(Date.now() + this.left);
  }

  /** Waits before another attempt; false where no time is left for one. */
  async pause() {
    const delay = Math.min(50 * 2 ** Math.min(this.#attempt++, 5), 1000);
    if (delay >= this.left) return false;
    await sleep(delay);
    return true;
  }
}

/** An error of a partition in a response that is otherwise OK. */
export class Refused extends Error {
  constructor(error) {
    super(`${error.code}: ${error.message}`);
    this.error = error;
  }
}

const decode = (name, bytes) => errors.lookupType(`google.rpc.${name}`).decode(bytes);

function details(error) {
  const found = {};
  const [status] = error.metadata?.get('grpc-status-details-bin') ?? [];
  if (status) {
    for (const { typeUrl: url, value } of decode('Status', status).details) {
      const name = url.slice(url.lastIndexOf('.') + 1);
      if (name === 'ErrorInfo' || name === 'RetryInfo') found[name] = decode(name, value);
    }
  }
  return found;
}

/** The code of streamlog, or the status of gRPC where the error is not streamlog's. */
export function reason(error) {
  if (error instanceof Refused) return error.error.code;
  return details(error).ErrorInfo?.reason ?? grpc.status[error.code] ?? 'UNKNOWN';
}

const broken = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED', 'UNKNOWN', 'INTERNAL'].map((name) => grpc.status[name]));

/** Whether a call that may be executed twice without harm is worth another attempt. */
export function mayRepeat(error) {
  if (!('code' in error)) return false;
  const { ErrorInfo, RetryInfo } = details(error);
  if (ErrorInfo) return Boolean(RetryInfo); // also of OUTCOME_UNKNOWN: without it another attempt does not help, or does harm
  return broken.has(error.code); // a connection broke: what the node did is unknown
}
