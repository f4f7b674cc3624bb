//! Graphs: building, optimising, planning, and the interpreter.

mod build;
mod interpret;
mod optimize;
mod plan;
