//! Compiles a graph to a program: a list of tasks, the memory that they use, and the steps that run
//! them.

mod buffer;
mod cache;
pub(super) mod executable;
mod expert_slots;
mod experts;
mod lower;
pub(super) mod memory;
mod profile;
mod step;
mod stored;
mod task;
