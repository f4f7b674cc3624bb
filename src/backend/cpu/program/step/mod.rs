//! One step: where everything lies, and how a thread does its share of each task.

mod attention;
mod context;
mod experts;
mod product;
mod recurrent;
mod rows;
mod walk;

pub(crate) use self::{context::Walk, walk::walk_tasks};
