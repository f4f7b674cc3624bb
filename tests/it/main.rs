//! The integration tests, as one binary.
<<<<<<< HEAD

mod gguf;
mod gguf_errors;
mod gguf_mutation;
mod quant;
=======
mod chat;
>>>>>>> text
mod sampler;
mod support;
<<<<<<< HEAD
mod tokenizer;
=======
mod weights;
>>>>>>> main
