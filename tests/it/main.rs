//! The integration tests, as one binary.
<<<<<<< HEAD

mod quant;
=======
mod chat;
>>>>>>> text
mod sampler;
mod support;
mod tokenizer;
