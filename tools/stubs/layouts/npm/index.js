// Clients of streamlog's services, over the proto files of this package. 64-bit integers are numbers: offsets and times are below 2^53.
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The folder of the proto files, for other generators. */
export const protos = fileURLToPath(new URL('proto', import.meta.url));

const files = readdirSync(`${protos}/streamlog/v1`).map((name) => `streamlog/v1/${name}`);
const options = { longs: Number, enums: String, bytes: Buffer, defaults: true, oneofs: true, includeDirs: [protos] };

/** Services and messages of the package streamlog.v1. */
export const { v1 } = grpc.loadPackageDefinition(protoLoader.loadSync(files, options)).streamlog;
