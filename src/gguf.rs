//! Reads GGUF files.
