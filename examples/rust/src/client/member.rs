use std::collections::{HashSet, VecDeque};

use tokio::time::Instant;
use tonic::transport::Channel;

use crate::{
    Failure,
    exchange::Exchange,
    failure::Attempts,
    v1::{
        ConsumeAcknowledgement, ConsumeJoin, ConsumeRequest, ConsumeResponse, ConsumeStatus, GroupMember,
        PartitionRecords, TopicPartition, consume_response::News, records_client::RecordsClient,
    },
};

const CREDITS_AHEAD: i32 = 500;

/// A member of a consumer group. If its stream breaks it joins again: its partitions are lost, and reading continues after the
/// committed offsets.
pub struct Member {
    client: RecordsClient<Channel>,
    join: ConsumeJoin,
    stream: Option<Exchange<ConsumeRequest, ConsumeResponse>>,
    /// Received while a commit was awaited.
    ahead: VecDeque<Result<ConsumeResponse, Failure>>,
    owned: HashSet<(String, i32)>,
    /// Given up at the next poll.
    revoked: Vec<TopicPartition>,
    identity: Option<GroupMember>,
    waits: Option<ConsumeStatus>,
}

/// What happened since the last poll.
#[derive(Default)]
pub struct Polled {
    pub assigned: Vec<TopicPartition>,
    pub revoked: Vec<TopicPartition>,
    pub lost: Vec<TopicPartition>,
    pub records: Vec<PartitionRecords>,
}

impl Polled {
    fn is_empty(&self) -> bool {
        self.assigned.is_empty() && self.revoked.is_empty() && self.lost.is_empty() && self.records.is_empty()
    }
}

impl Member {
    pub fn new(channel: Channel, join: ConsumeJoin) -> Self {
        Self {
            client: RecordsClient::new(channel),
            join,
            stream: None,
            ahead: VecDeque::new(),
            owned: HashSet::new(),
            revoked: Vec::new(),
            identity: None,
            waits: None,
        }
    }

    /// For offsets that are committed in a transaction.
    pub fn identity(&self) -> Option<GroupMember> {
        self.identity.clone()
    }

    /// What the node has last said about a silent stream, for people.
    pub fn waits_for(&self) -> Option<&ConsumeStatus> {
        self.waits.as_ref()
    }

    /// Returns at the first records or change of the assignment, or with nothing at the deadline. Partitions that the previous poll
    /// reported as revoked are given up now: commit what was processed of them before. May be dropped while it waits.
    pub async fn poll(&mut self, deadline: Instant) -> Result<Polled, Failure> {
        let mut polled = Polled::default();
        if !self.revoked.is_empty() {
            let released = std::mem::take(&mut self.revoked);
            if !self.send(ConsumeRequest { released, ..Default::default() }) {
                self.lose(&mut polled);
            }
        }
        let mut attempts = Attempts::until(deadline);
        loop {
            match self.next(deadline).await {
                None => return Ok(polled),
                Some(Ok(response)) => self.take(response, &mut polled),
                Some(Err(failure)) if failure.may_repeat => {
                    self.lose(&mut polled);
                    if !attempts.again().await {
                        return Ok(polled);
                    }
                }
                Some(Err(failure)) => {
                    self.close();
                    return Err(failure);
                }
            }
            if !polled.is_empty() && self.ahead.is_empty() {
                return Ok(polled);
            }
        }
    }

    fn take(&mut self, response: ConsumeResponse, polled: &mut Polled) {
        self.identity = response.member;
        match response.news {
            Some(News::Assigned(now)) => {
                self.owned.extend(now.partitions.iter().map(key));
                polled.assigned.extend(now.partitions);
            }
            Some(News::Revoked(now)) => {
                self.forget(&now.partitions);
                self.revoked.extend(now.partitions.iter().cloned());
                polled.revoked.extend(now.partitions);
            }
            Some(News::Lost(now)) => {
                self.forget(&now.partitions);
                polled.lost.extend(now.partitions);
            }
            Some(News::Records(part)) if !part.records.is_empty() => {
                let credits = part.records.len() as i32;
                polled.records.push(part);
                self.send(ConsumeRequest { credits, ..Default::default() }); // if it fails, so does the next receive
            }
            Some(News::Status(status)) => self.waits = Some(status),
            _ => {}
        }
    }

    fn forget(&mut self, partitions: &[TopicPartition]) {
        for one in partitions {
            self.owned.remove(&key(one));
        }
    }

    /// The stream, and with it all partitions.
    fn lose(&mut self, polled: &mut Polled) {
        self.close();
        polled.lost.extend(self.owned.drain().map(|(topic, partition)| TopicPartition { topic, partition }));
        polled.records.clear(); // they come again
    }

    /// Acknowledges records up to and with these offsets, and returns those partitions whose commit is replicated. The others were
    /// lost meanwhile; the next poll says so.
    pub async fn commit(
        &mut self,
        deadline: Instant,
        offsets: Vec<ConsumeAcknowledgement>,
    ) -> Vec<ConsumeAcknowledgement> {
        let mut done = Vec::new();
        if offsets.is_empty() || !self.send(ConsumeRequest { acknowledgements: offsets.clone(), ..Default::default() })
        {
            return done;
        }
        while done.len() < offsets.len() {
            let received = match self.stream.as_mut() {
                Some(stream) => stream.next(deadline).await,
                None => None,
            };
            match received {
                None => break,
                Some(Ok(ConsumeResponse { news: Some(News::Committed(at)), .. })) => done.extend(
                    offsets
                        .iter()
                        .filter(|one| one.topic == at.topic && one.partition == at.partition && at.offset > one.offset)
                        .cloned(),
                ),
                Some(other) => {
                    let ends = matches!(&other, Err(_) | Ok(ConsumeResponse { news: Some(News::Lost(_)), .. }));
                    self.ahead.push_back(other.map_err(Failure::from));
                    if ends {
                        break;
                    }
                }
            }
        }
        done
    }

    /// Leaves the group. What was not committed goes to another member.
    pub async fn leave(mut self, deadline: Instant) {
        if let Some(stream) = self.stream.take() {
            stream.finish(deadline).await;
        }
    }

    async fn next(&mut self, deadline: Instant) -> Option<Result<ConsumeResponse, Failure>> {
        if let Some(received) = self.ahead.pop_front() {
            return Some(received);
        }
        if self.stream.is_none() {
            let mut client = self.client.clone();
            self.stream = Some(Exchange::open(|requests| async move { client.consume(requests).await }));
            // If it fails, so does the receive.
            self.send(ConsumeRequest { join: Some(self.join.clone()), credits: CREDITS_AHEAD, ..Default::default() });
        }
        let received = self.stream.as_mut()?.next(deadline).await?;
        Some(received.map_err(Failure::from))
    }

    fn send(&self, request: ConsumeRequest) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.send(request))
    }

    fn close(&mut self) {
        self.stream = None;
        self.ahead.clear();
        self.revoked.clear();
        self.identity = None;
    }
}

fn key(one: &TopicPartition) -> (String, i32) {
    (one.topic.clone(), one.partition)
}
