// try SERVER TOPIC: creates a topic, writes three records and reads them back.
import grpc from '@grpc/grpc-js';
import { v1 } from 'streamlog-proto';

const [server, topic] = process.argv.slice(2) as [string, string];
const credentials = grpc.credentials.createInsecure();
const admin = new v1.Admin(server, credentials);
const records = new v1.Records(server, credentials);

admin.CreateTopics({ topics: [{ name: topic, partitions: 1 }] }, (failed, created) => {
  const error = failed ?? created?.results?.[0]?.error;
  if (error) throw new Error(error.message);
  const values = ['one', 'two', 'three'].map((value) => ({ value: Buffer.from(value) }));
  records.Publish({ topic, records: values }, (refused) => {
    if (refused) throw refused;
    const subscriptions = [{ topic, start: { bound: 'OFFSET_BOUND_EARLIEST' as const }, end: { bound: 'OFFSET_BOUND_LATEST' as const } }];
    const read: string[] = [];
    records
      .Subscribe({ subscriptions })
      .on('data', (response) => {
        for (const part of response.partitions) for (const record of part.records) read.push(record.value.toString());
      })
      .on('error', (broken: Error) => {
        throw broken;
      })
      .on('end', () => {
        console.log(read.join(' '));
        admin.close();
        records.close();
      });
  });
});
