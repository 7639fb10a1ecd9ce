//! Reads a topic as a member of a group and prints the records: group [--servers ...] [--count N] TOPIC GROUP. Start it several
//! times and stop some with Ctrl-C: the members share the partitions, and each record is read from the committed offsets on.

use std::{error::Error, time::Duration};

use client::{
    Member, Options, connect, stopped,
    v1::{ConsumeAcknowledgement, ConsumeJoin, OffsetReset},
};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "group [--servers HOST:PORT,...] [--count N] TOPIC GROUP";
    let options = Options::parse(usage, &[("servers", "127.0.0.1:9092"), ("count", "0")], 2);
    let join = ConsumeJoin {
        group: options.argument(1).into(),
        topics: vec![options.argument(0).into()],
        offset_reset: OffsetReset::Earliest.into(),
        client_id: "rust-group".into(),
        ..Default::default()
    };
    let mut member = Member::new(connect(options.value("servers"))?, join);
    let stop = stopped();
    tokio::pin!(stop);
    let mut read = 0;
    while options.count() == 0 || read < options.count() {
        let polled = tokio::select! {
            polled = member.poll(within(60)) => polled?,
            () = &mut stop => break,
        };
        let mut processed = Vec::new();
        for part in polled.records {
            for record in &part.records {
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
                println!("{}-{}@{} {value}", part.topic, part.partition, record.offset);
            }
            read += part.records.len();
            if let Some(last) = part.records.last() {
                processed.push(ConsumeAcknowledgement {
                    topic: part.topic,
                    partition: part.partition,
                    offset: last.offset,
                });
            }
        }
        member.commit(within(30), processed).await;
    }
    member.leave(within(10)).await;
    Ok(())
}

fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}
