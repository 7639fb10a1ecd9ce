use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tonic::{Request, transport::Channel};

use crate::{
    Failure,
    failure::Attempts,
    v1::{
        InitProducerIdRequest, PublishRecord, PublishRequest, PublishResult, batches_client::BatchesClient,
        records_client::RecordsClient,
    },
};

const ATTEMPT: Duration = Duration::from_secs(30);

/// Writes with an idempotence token: a request that got no response is sent again with the same token, and the records are in the
/// log once. One request at a time.
pub struct Producer {
    batches: BatchesClient<Channel>,
    records: RecordsClient<Channel>,
    token: Vec<u8>,
}

impl Producer {
    pub fn new(channel: Channel) -> Self {
        Self { batches: BatchesClient::new(channel.clone()), records: RecordsClient::new(channel), token: Vec::new() }
    }

    /// Repeats what may be repeated until the deadline.
    pub async fn publish(
        &mut self,
        deadline: Instant,
        topic: &str,
        records: Vec<PublishRecord>,
    ) -> Result<Vec<PublishResult>, Failure> {
        let mut attempts = Attempts::until(deadline);
        loop {
            let attempt = timeout_at(deadline, self.attempt(topic, &records)).await;
            match attempt.unwrap_or_else(|_| Err(Failure::late())) {
                Err(failure) if failure.may_repeat && attempts.again().await => {}
                done => {
                    if done.is_err() {
                        self.token.clear(); // records may be written: with the same token the next ones would pass for them
                    }
                    return done;
                }
            }
        }
    }

    async fn attempt(&mut self, topic: &str, records: &[PublishRecord]) -> Result<Vec<PublishResult>, Failure> {
        if self.token.is_empty() {
            let made = self.batches.init_producer_id(limited(InitProducerIdRequest::default())).await?;
            self.token = made.into_inner().producer_token;
        }
        let request = PublishRequest {
            topic: topic.into(),
            records: records.to_vec(),
            producer_token: self.token.clone(),
            ..Default::default()
        };
        let response = self.records.publish(limited(request)).await?.into_inner();
        self.token = response.producer_token;
        Ok(response.results)
    }
}

/// A unary call ends within this time, whatever happens to its node.
fn limited<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ATTEMPT);
    request
}
