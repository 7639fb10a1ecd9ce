use tokio::time::Instant;
use tonic::transport::Channel;

use crate::{
    Failure,
    exchange::Exchange,
    failure::Attempts,
    v1::{
        PublishResult, PublishStreamRequest, PublishStreamResponse, TransactionEnd, TransactionOutcome,
        TransactionalWriter, records_client::RecordsClient,
    },
};

/// Transactions of one transactional id, one after another, on a PublishStream. If the stream breaks, another one is opened with the
/// last token: it says whether the transaction was committed; if not, its requests are sent again. Dropping it aborts an open
/// transaction.
pub struct Transactions {
    client: RecordsClient<Channel>,
    writer: TransactionalWriter,
    stream: Option<Exchange<PublishStreamRequest, PublishStreamResponse>>,
    /// Of the open transaction, or the next one.
    token: Vec<u8>,
    /// Of the open transaction.
    sent: Vec<PublishStreamRequest>,
    /// One of them was refused: the transaction can only be aborted.
    broken: bool,
}

/// The result of a request: the outcome if it ended the transaction, and why it was aborted.
pub struct Ended {
    pub outcome: TransactionOutcome,
    pub results: Vec<PublishResult>,
    pub failure: Option<Failure>,
}

impl Transactions {
    /// Fences earlier producers with the same id, and aborts what they left open.
    pub async fn open(channel: Channel, deadline: Instant, id: &str, timeout_ms: i32) -> Result<Self, Failure> {
        let mut opened = Self {
            client: RecordsClient::new(channel),
            writer: TransactionalWriter { transactional_id: id.into(), timeout_ms },
            stream: None,
            token: Vec::new(),
            sent: Vec::new(),
            broken: false,
        };
        let mut attempts = Attempts::until(deadline);
        loop {
            match opened.begin(deadline).await {
                Ok(_) => return Ok(opened),
                Err(failure) if failure.may_repeat && attempts.again().await => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Sends records and offsets as part of the transaction, and ends it if the request has an end. A transaction that was aborted
    /// for a passing reason is written again; what its records or offsets were refused for is returned.
    pub async fn write(&mut self, deadline: Instant, request: PublishStreamRequest) -> Result<Ended, Failure> {
        let ends = request.end() != TransactionEnd::Unspecified;
        self.sent.push(request);
        let mut attempts = Attempts::until(deadline);
        loop {
            let failure = match self.attempt(deadline).await {
                Ok(ended) => match &ended.failure {
                    Some(failure) if !self.broken && passing(failure) => failure.clone(),
                    refused => {
                        self.broken |= refused.is_some();
                        if ends {
                            self.sent.clear();
                            self.broken = false;
                        }
                        return Ok(ended);
                    }
                },
                Err(failure) if failure.may_repeat => failure,
                Err(failure) => {
                    self.stream = None;
                    return Err(failure);
                }
            };
            self.stream = None; // an open transaction is aborted
            if !attempts.again().await {
                return Err(failure);
            }
        }
    }

    async fn attempt(&mut self, deadline: Instant) -> Result<Ended, Failure> {
        let mut requests = self.sent.clone();
        let Some(request) = requests.pop() else { return Err(Failure::new("INVALID_REQUEST", "nothing to write")) };
        let end = request.end();
        if self.stream.is_none() {
            if self.begin(deadline).await? == TransactionOutcome::Committed {
                return Ok(Ended { outcome: TransactionOutcome::Committed, results: Vec::new(), failure: None });
            }
            for earlier in requests {
                self.exchange(deadline, earlier).await?;
            }
        }
        let response = self.exchange(deadline, request).await?;
        let outcome = response.outcome();
        if outcome == TransactionOutcome::Aborted && end == TransactionEnd::Abort {
            return Ok(Ended { outcome, results: response.results, failure: None }); // as it was wanted
        }
        let mut failure = response.error;
        for error in response.results.iter().filter_map(|result| result.error.as_ref()) {
            if failure.as_ref().is_none_or(|known| known.code == "TRANSACTION_ABORTABLE") {
                failure = Some(error.clone());
            }
        }
        Ok(Ended { outcome, results: response.results, failure: failure.map(Failure::from) })
    }

    async fn begin(&mut self, deadline: Instant) -> Result<TransactionOutcome, Failure> {
        let mut client = self.client.clone();
        self.stream = Some(Exchange::open(|requests| async move { client.publish_stream(requests).await }));
        let first = PublishStreamRequest {
            transactional: Some(self.writer.clone()),
            producer_token: self.token.clone(),
            ..Default::default()
        };
        let begun = self.exchange(deadline, first).await;
        if begun.is_err() {
            self.stream = None;
        }
        Ok(begun?.former_outcome())
    }

    async fn exchange(
        &mut self,
        deadline: Instant,
        request: PublishStreamRequest,
    ) -> Result<PublishStreamResponse, Failure> {
        let Some(stream) = self.stream.as_mut() else { return Err(Failure::late()) };
        stream.send(request); // if it fails, the receive has the reason
        let response = stream.next(deadline).await.ok_or_else(Failure::late)??;
        if !response.producer_token.is_empty() {
            self.token.clone_from(&response.producer_token);
        }
        Ok(response)
    }
}

/// Another attempt may commit. Not one with the offsets of a member that was removed from its group.
fn passing(failure: &Failure) -> bool {
    let removed = matches!(
        failure.details.get("cause_code").map(String::as_str),
        Some("ILLEGAL_GENERATION" | "UNKNOWN_MEMBER_ID")
    );
    !removed && (failure.may_repeat || failure.reason == "TRANSACTION_ABORTABLE")
}
