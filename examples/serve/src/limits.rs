//! Bounds what one request may ask for.

use std::time::Duration;

/// The largest body of a request in bytes.
pub const BODY_BYTES: usize = 32 << 20;
/// The size in bytes from which a body is large.
pub const LARGE_BODY: usize = 1 << 20;
/// The largest number of large bodies that are read at a time.
pub const LARGE_BODIES: usize = 8;
/// The longest time for reading a body.
pub const BODY_TIME: Duration = Duration::from_secs(60);
/// The largest number of bodies that are parsed at a time, each with up to one image in memory.
pub const PARSERS: usize = 2;
/// The largest number of messages of a conversation.
pub const MESSAGES: usize = 4096;
/// The largest number of images of a request.
pub const IMAGES: usize = 16;
/// The largest number of pixels of an image.
pub const IMAGE_PIXELS: usize = 16 << 20;
/// The largest number of tools.
pub const TOOLS: usize = 256;
/// The largest number of answers to one request.
pub const CHOICES: usize = 16;
/// The largest number of stop strings.
pub const STOPS: usize = 16;
/// The largest number of biased tokens.
pub const BIASES: usize = 4096;
/// The number of most probable tokens at a position that is too large.
pub const TOO_MANY_LOGPROBS: usize = 21;
/// The time after which a stream without events sends a sign of life.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The time that streams get to send their last event when the server ends.
pub const LAST_WORDS: Duration = Duration::from_secs(2);
