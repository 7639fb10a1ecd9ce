//! The driver of the conformance suite (docs/conformance.md): commands as JSON lines on standard input, results on standard output.

use std::{collections::HashMap, error::Error, time::Duration};

use client::{
    Failure, Member, Producer, Transactions, connect, read_to_end,
    v1::{
        ClusterDescribeRequest, ConsumeAcknowledgement, ConsumeJoin, IsolationLevel, OffsetBound, OffsetReset,
        OffsetToCommit, PublishRecord, PublishStreamRequest, ReceivedRecord, StartPosition, TopicPartition,
        TransactionEnd, TransactionOffsets, TransactionOutcome, cluster_client::ClusterClient,
        start_position::Position,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    time::Instant,
};
use tonic::transport::Channel;

#[derive(Default)]
struct Driver {
    channel: Option<Channel>,
    producers: HashMap<String, Producer>,
    transactions: HashMap<String, Transactions>,
    members: HashMap<String, (String, Member)>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut driver = Driver::default();
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let command: Value = serde_json::from_str(&line)?;
        let answer = match driver.run(&command).await {
            Ok(result) => json!({"id": command["id"], "result": result}),
            Err(failure) => {
                json!({"id": command["id"], "error": {"code": failure.reason, "message": failure.message}})
            }
        };
        println!("{answer}");
    }
    Ok(())
}

impl Driver {
    async fn run(&mut self, command: &Value) -> Result<Value, Failure> {
        let deadline = Instant::now() + Duration::from_millis(command["timeout_ms"].as_u64().unwrap_or_default());
        match text(&command["command"]).as_str() {
            "connect" => {
                let channel = connect(&text(&command["servers"]))?;
                self.channel = Some(channel.clone());
                let request = ClusterDescribeRequest { client_version: "rust-conformance".into() };
                let about = ClusterClient::new(channel).describe(request).await?.into_inner();
                Ok(json!({"version": about.version}))
            }
            "produce" => {
                let channel = self.channel()?;
                let topic = text(&command["topic"]);
                let producer =
                    self.producers.entry(text(&command["producer"])).or_insert_with(|| Producer::new(channel));
                let results = producer.publish(deadline, &topic, to_write(command)).await?;
                let offset = |partition, offset| json!({"topic": topic, "partition": partition, "offset": offset});
                Ok(json!({"offsets": results.iter().map(|one| offset(one.partition, one.offset)).collect::<Vec<_>>()}))
            }
            "read" => {
                let (topic, partition) = (text(&command["topic"]), number(&command["partition"]) as i32);
                let position = match command["start"].as_i64() {
                    Some(offset) => Position::Offset(offset),
                    None => Position::Bound(OffsetBound::Earliest.into()),
                };
                let start = StartPosition { position: Some(position) };
                let (records, position) =
                    read_to_end(self.channel()?, deadline, &topic, partition, start, isolation(command)).await?;
                Ok(json!({"records": received(&topic, partition, records), "position": position}))
            }
            "join" => {
                let group = text(&command["group"]);
                let join = ConsumeJoin {
                    group: group.clone(),
                    topics: list(&command["topics"]).iter().map(text).collect(),
                    offset_reset: OffsetReset::Earliest.into(),
                    isolation_level: isolation(command).into(),
                    processing_timeout_ms: number(&command["processing_timeout_ms"]) as i32,
                    client_id: "rust-conformance".into(),
                    heartbeat_interval_ms: 500,
                    ..Default::default()
                };
                self.members.insert(text(&command["member"]), (group, Member::new(self.channel()?, join)));
                Ok(json!({}))
            }
            "poll" => {
                let polled = self.member(command)?.1.poll(deadline).await?;
                let records: Vec<Value> = polled
                    .records
                    .into_iter()
                    .flat_map(|part| received(&part.topic, part.partition, part.records))
                    .collect();
                Ok(json!({
                    "records": records, "assigned": partitions(&polled.assigned),
                    "revoked": partitions(&polled.revoked), "lost": partitions(&polled.lost),
                }))
            }
            "commit" => {
                let offsets = list(&command["offsets"])
                    .iter()
                    .map(|one| ConsumeAcknowledgement {
                        topic: text(&one["topic"]),
                        partition: number(&one["partition"]) as i32,
                        offset: number(&one["offset"]) - 1,
                    })
                    .collect();
                let done = self.member(command)?.1.commit(deadline, offsets).await;
                let offset = |one: &ConsumeAcknowledgement| json!({"topic": one.topic, "partition": one.partition, "offset": one.offset + 1});
                Ok(json!({"committed": done.iter().map(offset).collect::<Vec<_>>()}))
            }
            "leave" => {
                if let Some((_, member)) = self.members.remove(&text(&command["member"])) {
                    member.leave(deadline).await;
                }
                Ok(json!({}))
            }
            "open_transactions" => {
                let timeout_ms = number(&command["transaction_timeout_ms"]) as i32;
                let id = text(&command["transactional_id"]);
                let opened = Transactions::open(self.channel()?, deadline, &id, timeout_ms).await?;
                self.transactions.insert(text(&command["producer"]), opened);
                Ok(json!({}))
            }
            "transact" => self.transact(deadline, command).await,
            other => Err(unknown("command", other)),
        }
    }

    async fn transact(&mut self, deadline: Instant, command: &Value) -> Result<Value, Failure> {
        let end = match command["end"].as_str() {
            Some("commit") => TransactionEnd::Commit,
            Some("abort") => TransactionEnd::Abort,
            _ => TransactionEnd::Unspecified,
        };
        let mut request = PublishStreamRequest {
            topic: text(&command["topic"]),
            records: to_write(command),
            end: end.into(),
            ..Default::default()
        };
        if !list(&command["offsets"]).is_empty() {
            let (group, member) = self.member(command)?;
            let offsets = list(&command["offsets"])
                .iter()
                .map(|one| OffsetToCommit {
                    topic: text(&one["topic"]),
                    partition: number(&one["partition"]) as i32,
                    offset: number(&one["offset"]),
                    ..Default::default()
                })
                .collect();
            request.offsets.push(TransactionOffsets { group: group.clone(), member: member.identity(), offsets });
        }
        let producer = text(&command["producer"]);
        let transactions = self.transactions.get_mut(&producer).ok_or_else(|| unknown("producer", &producer))?;
        let ended = transactions.write(deadline, request).await?;
        let outcome = match ended.outcome {
            TransactionOutcome::Committed => "committed",
            TransactionOutcome::Aborted => "aborted",
            TransactionOutcome::Unspecified => "",
        };
        Ok(json!({"outcome": outcome, "refused": ended.failure.as_ref().map_or("", Failure::cause)}))
    }

    fn channel(&self) -> Result<Channel, Failure> {
        self.channel.clone().ok_or_else(|| Failure::new("INVALID_REQUEST", "not connected"))
    }

    fn member(&mut self, command: &Value) -> Result<&mut (String, Member), Failure> {
        let name = text(&command["member"]);
        self.members.get_mut(&name).ok_or_else(|| unknown("member", &name))
    }
}

fn unknown(what: &str, name: &str) -> Failure {
    Failure::new("INVALID_REQUEST", format!("unknown {what} '{name}'"))
}

fn isolation(command: &Value) -> IsolationLevel {
    match command["read_committed"].as_bool() {
        Some(true) => IsolationLevel::ReadCommitted,
        _ => IsolationLevel::ReadUncommitted,
    }
}

fn to_write(command: &Value) -> Vec<PublishRecord> {
    let bytes = |value: &Value| value.as_str().map(|text| text.as_bytes().to_vec());
    list(&command["records"])
        .iter()
        .map(|one| PublishRecord {
            key: bytes(&one["key"]),
            value: bytes(&one["value"]),
            partition: one["partition"].as_i64().map(|partition| partition as i32),
            ..Default::default()
        })
        .collect()
}

fn received(topic: &str, partition: i32, records: Vec<ReceivedRecord>) -> Vec<Value> {
    let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let row = |one: ReceivedRecord| json!({"topic": topic, "partition": partition, "offset": one.offset, "key": text(one.key), "value": text(one.value)});
    records.into_iter().map(row).collect()
}

fn partitions(given: &[TopicPartition]) -> Vec<Value> {
    given.iter().map(|one| json!([one.topic, one.partition])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
