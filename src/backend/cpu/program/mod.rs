//! The program of a compiled graph: its tasks, the memory that they use, and the walk of a step through them.

mod buffer;
pub(super) mod executable;
mod experts;
mod lower;
pub(super) mod memory;
mod profile;
mod step;
mod task;
