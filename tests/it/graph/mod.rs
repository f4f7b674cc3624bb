//! Tests graphs: building, optimizing, planning, and the reference interpreter.

mod build;
mod interpret;
mod optimize;
mod plan;
