//! Runs the tasks of one step on a thread: each thread does its share of every task.

mod attention;
mod context;
mod experts;
mod inputs;
mod product;
mod recurrent;
mod rows;
mod tasks;

pub(crate) use self::{
    context::StepContext,
    tasks::{CallersWork, StopPoint, run_tasks},
};
