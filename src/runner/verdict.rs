//! The verdict on a file: whether it can be used, and what keeps it from that.

use std::fmt;

use crate::{
    Error,
    gguf::{Fault, FaultKind},
    models::FileContent,
};

/// The number of tensors that a line names.
const NAMED: usize = 3;

/// Says whether a file can be used, for [`RunnerBuilder::check`](crate::RunnerBuilder::check).
/// Printed, it is a line for the whole, and one for each obstacle and limit.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// What the file has; `None` if that is unknown.
    pub content: Option<FileContent>,
    /// What keeps the file from being used. The first error is the one that loading returns.
    pub obstacles: Vec<Obstacle>,
    /// What a model lacks that runs all the same: a chat template that renders, or a vision encoder
    /// although the file of one is beside it.
    pub limits: Vec<Error>,
}

/// A reason why a file cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub struct Obstacle {
    /// The part of the file that is concerned.
    pub kind: ObstacleKind,
    /// The error, of the first tensor if there are several.
    pub error: Error,
    /// The names of all tensors that are concerned, if these are what is wrong.
    pub tensors: Vec<String>,
}

/// The part of a file that keeps it from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObstacleKind {
    /// The file cannot be read, is malformed, or lacks a shard.
    File,
    /// The file ends before the data of tensors does.
    MissingData,
    /// The file is not a model.
    Content,
    /// The architecture is not supported.
    Architecture,
    /// A key, or a setting of `config.json`, is missing or not supported.
    Metadata,
    /// Tensors are stored in a format without kernels.
    TensorType,
    /// A tensor is missing, or has another shape than the keys say.
    Tensor,
    /// The architecture has no use for tensors.
    UnusedTensors,
    /// The tokenizer is missing or not supported.
    Tokenizer,
    /// A setting of the builder does not fit the model.
    Setting,
}

impl Verdict {
    /// Returns whether the file can be used: a model runs; a vision encoder or a head for
    /// multi-token prediction is one of a kind that works beside its model.
    pub fn is_usable(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// Adds an obstacle, unless its message or its tensor is there already.
    pub(super) fn add(&mut self, obstacle: Obstacle) {
        let tensor = if let Error::Tensor { tensor, .. } = &obstacle.error { Some(tensor) } else { None };
        let names_it = |known: &Obstacle| tensor.is_some_and(|tensor| known.tensors.contains(tensor));
        let says_it = |known: &Obstacle| known.error.to_string() == obstacle.error.to_string();
        let is_known = |known: &Obstacle| says_it(known) || (known.kind == obstacle.kind && names_it(known));
        if !self.obstacles.iter().any(is_known) {
            self.obstacles.push(obstacle);
        }
    }

    /// Adds the faults of a file: one obstacle for all tensors whose data is missing, and one for
    /// each unknown type.
    pub(super) fn add_faults(&mut self, faults: Vec<Fault>) {
        let kind_of = |kind| match kind {
            FaultKind::File => ObstacleKind::File,
            FaultKind::MissingData => ObstacleKind::MissingData,
            FaultKind::UnknownType(_) => ObstacleKind::TensorType,
        };
        let obstacle = |Fault { kind, error, tensors }| Obstacle { kind: kind_of(kind), error, tensors };
        self.obstacles.extend(faults.into_iter().map(obstacle));
    }
}

impl Obstacle {
    pub(super) fn new(kind: ObstacleKind, error: Error) -> Self {
        Self { kind, error, tensors: vec![] }
    }
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Architecture { .. } => ObstacleKind::Architecture,
            Error::Metadata { .. } => ObstacleKind::Metadata,
            Error::Tensor { .. } => ObstacleKind::Tensor,
            Error::Tokenizer(_) => ObstacleKind::Tokenizer,
            Error::Argument { .. } | Error::ChatTemplate(_) => ObstacleKind::Setting,
            _ => ObstacleKind::File,
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let can = match (&self.content, self.is_usable()) {
            (Some(FileContent::Model { .. }) | None, true) => "runs",
            (Some(FileContent::Model { .. }) | None, false) => "does not run",
            (Some(_), true) => "is supported beside its model",
            (Some(_), false) => "cannot be used",
        };
        f.write_str(can)?;
        if let Some(content) = &self.content {
            write!(f, ": {content}")?;
        }
        self.obstacles.iter().try_for_each(|obstacle| write!(f, "\n  {obstacle}"))?;
        let is_data = |obstacle: &Obstacle| obstacle.kind == ObstacleKind::MissingData;
        if !self.is_usable() && self.obstacles.iter().all(is_data) {
            f.write_str("\n  nothing else is missing")?;
        }
        self.limits.iter().try_for_each(|limit| write!(f, "\n  limit: {limit}"))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        let [_, others @ ..] = &self.tensors[..] else { return Ok(()) };
        if others.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = others.iter().take(NAMED).map(|name| format!("`{}`", name.escape_debug())).collect();
        let more = match others.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        write!(f, " (the same holds for {}{more})", named.join(", "))
    }
}
