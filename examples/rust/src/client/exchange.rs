use std::future::Future;

use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

const REQUESTS_WAITING: usize = 64;

/// A stream in both directions, carried by a task: a node answers the call itself only with its first response. Dropping it
/// cancels the call.
pub struct Exchange<Q, P> {
    requests: Option<mpsc::Sender<Q>>,
    responses: mpsc::Receiver<Result<P, Status>>,
    task: AbortHandle,
}

impl<Q: Send + 'static, P: Send + 'static> Exchange<Q, P> {
    pub fn open<F>(call: impl FnOnce(ReceiverStream<Q>) -> F) -> Self
    where
        F: Future<Output = Result<Response<Streaming<P>>, Status>> + Send + 'static,
    {
        let (requests, queued) = mpsc::channel(REQUESTS_WAITING);
        let (received, responses) = mpsc::channel(1);
        let calling = call(ReceiverStream::new(queued));
        let task = tokio::spawn(async move {
            let mut stream = match calling.await {
                Ok(response) => response.into_inner(),
                Err(status) => return drop(received.send(Err(status)).await),
            };
            loop {
                let next = stream.message().await;
                let ended = !matches!(next, Ok(Some(_)));
                let next =
                    next.and_then(|message| message.ok_or_else(|| Status::unavailable("the node ended the stream")));
                if received.send(next).await.is_err() || ended {
                    return;
                }
            }
        });
        Self { requests: Some(requests), responses, task: task.abort_handle() }
    }

    /// False if the stream is broken: then the next response is the reason.
    pub fn send(&self, request: Q) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.try_send(request).is_ok())
    }

    /// None: no time left.
    pub async fn next(&mut self, deadline: Instant) -> Option<Result<P, Status>> {
        let received = timeout_at(deadline, self.responses.recv()).await.ok()?;
        Some(received.unwrap_or_else(|| Err(Status::unavailable("the stream has ended"))))
    }

    /// No more requests; the remaining responses are dropped until the node ends the stream.
    pub async fn finish(mut self, deadline: Instant) {
        self.requests = None;
        while let Some(Ok(_)) = self.next(deadline).await {}
    }
}

impl<Q, P> Drop for Exchange<Q, P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
