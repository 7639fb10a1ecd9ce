//! Copies a topic to another one, in upper case, each record exactly once: exactly-once [--servers ...] [--count N] FROM TO GROUP.
//! The records and the offsets that they were read at are one transaction.

use std::{error::Error, time::Duration};

use client::{
    Member, Options, Transactions, connect, stopped,
    v1::{
        ConsumeJoin, IsolationLevel, OffsetReset, OffsetToCommit, PublishRecord, PublishStreamRequest, TransactionEnd,
        TransactionOffsets, TransactionOutcome,
    },
};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "exactly-once [--servers HOST:PORT,...] [--transactional-id ID] [--count N] FROM TO GROUP";
    // Each running copy of the program has a transactional id of its own.
    let defaults = [("servers", "127.0.0.1:9092"), ("transactional-id", "upper-1"), ("count", "0")];
    let options = Options::parse(usage, &defaults, 3);
    let (from, to, group) = (options.argument(0), options.argument(1), options.argument(2));
    let channel = connect(options.value("servers"))?;
    // Before the first record is read: a transaction of an earlier copy ends, and its offsets with it.
    let id = options.value("transactional-id");
    let mut transactions = Transactions::open(channel.clone(), within(60), id, 60_000).await?;
    let join = ConsumeJoin {
        group: group.into(),
        topics: vec![from.into()],
        offset_reset: OffsetReset::Earliest.into(),
        isolation_level: IsolationLevel::ReadCommitted.into(),
        client_id: "rust-exactly-once".into(),
        ..Default::default()
    };
    let mut member = Member::new(channel.clone(), join.clone());
    let stop = stopped();
    tokio::pin!(stop);
    let mut copied = 0;
    while options.count() == 0 || copied < options.count() {
        let polled = tokio::select! {
            polled = member.poll(within(60)) => polled?,
            () = &mut stop => break,
        };
        if polled.records.is_empty() {
            continue;
        }
        let mut request =
            PublishStreamRequest { topic: to.into(), end: TransactionEnd::Commit.into(), ..Default::default() };
        let mut offsets = TransactionOffsets { group: group.into(), member: member.identity(), offsets: Vec::new() };
        for part in polled.records {
            let next = part.records.last().map_or(0, |last| last.offset + 1);
            let at =
                OffsetToCommit { topic: part.topic, partition: part.partition, offset: next, ..Default::default() };
            offsets.offsets.push(at);
            request.records.extend(part.records.into_iter().map(|record| PublishRecord {
                key: record.key,
                value: record.value.map(|value| value.to_ascii_uppercase()),
                ..Default::default()
            }));
        }
        request.offsets.push(offsets);
        let count = request.records.len();
        let ended = transactions.write(within(60), request).await?;
        if ended.outcome == TransactionOutcome::Committed {
            copied += count;
            continue;
        }
        // The member has lost its partitions, and the offsets were refused: read again from the committed ones.
        eprintln!("aborted: {}", ended.failure.map(|failure| failure.message).unwrap_or_default());
        member.leave(within(10)).await;
        member = Member::new(channel.clone(), join.clone());
    }
    member.leave(within(10)).await;
    println!("{copied} records copied");
    Ok(())
}

fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}
