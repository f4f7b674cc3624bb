mod decoder;
mod stop;
pub use decoder::{Decoder, Limits, Wanted};
