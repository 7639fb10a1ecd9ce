use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;

use crate::{
    Failure,
    failure::Attempts,
    v1::{
        EndPosition, IsolationLevel, OffsetBound, ReceivedRecord, StartPosition, SubscribePartitions, SubscribeRequest,
        end_position, records_client::RecordsClient, start_position,
    },
};

/// Reads one partition from a position to its present end; returns the position after it, too. A stream that breaks is opened again
/// where it was.
pub async fn read_to_end(
    channel: Channel,
    deadline: Instant,
    topic: &str,
    partition: i32,
    start: StartPosition,
    isolation: IsolationLevel,
) -> Result<(Vec<ReceivedRecord>, i64), Failure> {
    let mut reading = Reading { records: Vec::new(), position: 0, start };
    let mut client = RecordsClient::new(channel);
    let mut attempts = Attempts::until(deadline);
    loop {
        let request = SubscribeRequest {
            subscriptions: vec![SubscribePartitions {
                topic: topic.into(),
                partitions: vec![partition],
                start: Some(reading.start),
                end: Some(EndPosition { position: Some(end_position::Position::Bound(OffsetBound::Latest.into())) }),
            }],
            isolation_level: isolation.into(),
            ..Default::default()
        };
        let attempt = timeout_at(deadline, reading.attempt(&mut client, request)).await;
        match attempt.unwrap_or_else(|_| Err(Failure::late())) {
            Ok(()) => return Ok((reading.records, reading.position)),
            Err(failure) if failure.may_repeat && attempts.again().await => {}
            Err(failure) => return Err(failure),
        }
    }
}

struct Reading {
    records: Vec<ReceivedRecord>,
    position: i64,
    start: StartPosition,
}

impl Reading {
    async fn attempt(&mut self, client: &mut RecordsClient<Channel>, request: SubscribeRequest) -> Result<(), Failure> {
        let mut stream = client.subscribe(request).await?.into_inner();
        while let Some(response) = stream.message().await? {
            for part in response.partitions {
                if let Some(error) = part.error {
                    return Err(error.into());
                }
                self.records.extend(part.records);
                self.position = part.position;
                self.start = StartPosition { position: Some(start_position::Position::Offset(part.position)) };
            }
        }
        Ok(())
    }
}
