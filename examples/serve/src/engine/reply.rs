//! Receives the events of a job.

use inkstone::StopHandle;
use tokio::sync::{mpsc::UnboundedReceiver, watch};

use super::{Answer, Ended, Event};
use crate::error::ApiError;

/// The events of a job's answers. Dropping it stops the job within a step.
pub struct Reply {
    events: UnboundedReceiver<(usize, Event)>,
    stop: StopHandle,
    choices: usize,
    /// Number of answers that go on.
    open: usize,
    ended: watch::Receiver<bool>,
}

impl Reply {
    pub(super) fn new(events: UnboundedReceiver<(usize, Event)>, choices: usize, ended: watch::Receiver<bool>) -> Self {
        Self { events, stop: StopHandle::new(), choices, open: choices, ended }
    }

    pub(super) fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Returns the next event and the index of its answer; `None` after all answers have ended, or
    /// one has failed.
    pub async fn next(&mut self) -> Option<(usize, Event)> {
        if self.open == 0 {
            return None;
        }
        let event = tokio::select! {
            event = self.events.recv() => event,
            _ = self.ended.wait_for(|ended| *ended) => Some((0, Event::Failed(ApiError::draining()))),
        };
        let lost = || (0, Event::Failed(ApiError::internal("the thread of the request has panicked")));
        let event = event.unwrap_or_else(lost);
        match event.1 {
            Event::Ended(_) => self.open -= 1,
            Event::Failed(_) => self.open = 0,
            Event::Started(_) | Event::Piece(..) => {}
        }
        Some(event)
    }

    /// Returns the first event, which says whether the request can be answered.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub async fn first(&mut self) -> Result<(usize, Event), ApiError> {
        match self.next().await {
            Some((_, Event::Failed(error))) => Err(error),
            Some(event) => Ok(event),
            None => Err(ApiError::internal("the request has no answer")),
        }
    }

    /// Returns all answers in order.
    ///
    /// # Errors
    /// The first error of an answer.
    pub async fn answers(mut self) -> Result<Vec<(Answer, Ended)>, ApiError> {
        let mut answers: Vec<_> = (0..self.choices).map(|_| (Answer::default(), None)).collect();
        while let Some((choice, event)) = self.next().await {
            match event {
                Event::Started(_) => {}
                Event::Piece(piece, tokens) => answers[choice].0.add(piece, tokens),
                Event::Ended(ended) => answers[choice].1 = Some(ended),
                Event::Failed(error) => return Err(error),
            }
        }
        let complete = |(answer, ended): (Answer, Option<Ended>)| {
            ended.map(|ended| (answer, ended)).ok_or_else(|| ApiError::internal("an answer has no end"))
        };
        answers.into_iter().map(complete).collect()
    }
}

/// Stops the job if the client has gone.
impl Drop for Reply {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
