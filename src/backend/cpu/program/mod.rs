//! The program of a compiled graph: its tasks, the memory that they use, and the walk of a step through them.

pub(super) mod executable;
mod experts;
mod profile;
mod step;
mod task;
