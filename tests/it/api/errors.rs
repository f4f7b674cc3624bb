//! Tests of error messages: complete, without repetition, and with advice that works.

use std::{error::Error as _, io};

use inkstone::{Error, Runner};

use crate::support::{data, gguf_file::Folder, on_cpu, tiny::MODELS};

/// One error of each variant, with the texts that its message must contain.
fn every_error() -> Vec<(Error, &'static [&'static str])> {
    let text = String::from;
    let denied = io::Error::new(io::ErrorKind::PermissionDenied, "permission denied");
    let what = || text("is wrong");
    vec![
        (Error::Io { path: "a.gguf".into(), source: denied }, &["a.gguf", "permission denied"]),
        (Error::InvalidFile { path: "a.gguf".into(), what: what() }, &["a.gguf", "is wrong"]),
        (Error::Metadata { key: text("a.key"), what: what() }, &["a.key", "is wrong"]),
        (Error::Tensor { tensor: text("a.weight"), what: what() }, &["a.weight", "is wrong"]),
        (Error::Architecture { name: text("a"), known: true, supported: text("b, c") }, &["`a`", "b, c"]),
        (Error::Internal(what()), &["is wrong", "report"]),
        (Error::Tokenizer(what()), &["is wrong"]),
        (Error::ChatTemplate(what()), &["is wrong"]),
        (Error::Grammar(what()), &["is wrong"]),
        (
            Error::Incomplete { form: text("City"), stop: text("TokenLimit"), what: what(), text: text("{") },
            &["`City`", "TokenLimit", "is wrong", "`{`"],
        ),
        (Error::Form { form: text("City"), what: what(), text: text("[]") }, &["`City`", "is wrong", "`[]`"]),
        (Error::ToolCall { what: what(), text: text("call()"), call: None }, &["call()", "is wrong"]),
        (Error::Argument { name: "threads", what: what() }, &["threads", "is wrong"]),
        (Error::Request { index: 7, error: Box::new(Error::Grammar(what())) }, &["7", "is wrong"]),
        (Error::MissingFeature { feature: "chat", what: what() }, &["`chat`", "is wrong"]),
        (Error::Cancelled, &["cancelled"]),
        (Error::ContextFull { tokens: 3, free: 2, context: 8, trained: None }, &["3", "2", "8"]),
        (Error::Memory { what: "the cache", needed: 9, limit: 5 }, &["the cache", "9", "5"]),
        (Error::OutOfMemory { what: "the cache", bytes: 9 }, &["the cache", "9"]),
        (Error::NoDevice(what()), &["is wrong"]),
        (Error::Device { device: text("a GPU"), what: what() }, &["a GPU", "is wrong"]),
        (Error::DeviceMemory { device: text("a GPU"), what: text("weights"), needed: 9 }, &["a GPU", "weights", "9"]),
        (Error::Thread(what()), &["is wrong"]),
        (Error::Unsupported(what()), &["is wrong"]),
    ]
}

/// A report prints the message and then each source, so a source must not be included in the
/// message, too.
#[test]
fn error_messages_name_each_cause_once() {
    for (error, texts) in every_error() {
        let message = error.to_string();
        for text in texts {
            assert_eq!(message.matches(text).count(), 1, "{message}");
        }
        assert_eq!(format!("{error:?}"), message);
        assert!(error.source().is_none(), "{message}");
    }
}

#[test]
fn main_prints_the_error_message() {
    let folder = Folder::new();
    let path = folder.path().join("missing.gguf");
    let error = Runner::from_gguf(&path).unwrap_err();
    let system = io::Error::from_raw_os_error(2);
    assert_eq!(format!("{error:?}"), format!("{}: {system}", path.display()));
    match error {
        Error::Io { path: named, source } => assert_eq!((named, source.kind()), (path, io::ErrorKind::NotFound)),
        other => panic!("{other}"),
    }
}

#[test]
fn full_context_error_suggests_what_helps() {
    let message = |error: Error| {
        assert!(matches!(error, Error::ContextFull { .. }), "{error}");
        error.to_string()
    };
    // The model was trained for 512 positions.
    let mut runner = on_cpu().context_length(40).from_gguf(MODELS[0].path()).unwrap();
    let too_long = message(runner.predict_logits(&[1; 41]).unwrap_err());
    assert_eq!(
        too_long,
        "41 tokens do not fit the context of 40 positions: shorten the prompt, \
         or load the model with a larger `context_length` (it was trained for 512)"
    );
    runner.prefill(&[1; 40]).unwrap();
    let full = "cannot add 1 token: 0 of the context's 40 positions are free: truncate or reset the sequence, \
                or load the model with a larger `context_length` (it was trained for 512)";
    assert_eq!(message(runner.decode(1).unwrap_err()), full);
    assert_eq!(message(runner.clone().generate_ids(&[1; 41], 1, |_| true).unwrap_err()), too_long);
    assert!(message(runner.prefill(&[1; 41]).unwrap_err()).contains("shorten the prompt"));
    runner.truncate(38).unwrap();
    assert!(message(runner.prefill(&[1; 3]).unwrap_err()).starts_with("cannot add 3 tokens: 2 of the context's 40"));

    let mut longest = on_cpu().context_length(512).from_gguf(MODELS[0].path()).unwrap();
    assert_eq!(
        message(longest.prefill(&[1; 513]).unwrap_err()),
        "513 tokens do not fit the context of 512 positions: shorten the prompt; \
         the model was trained for no longer context"
    );
    let prompt = "one ".repeat(20_000);
    let mut storyteller = on_cpu().from_gguf(data("storyteller/storyteller.gguf")).unwrap();
    let error = message(storyteller.generate(&prompt, &Default::default()).unwrap_err());
    assert!(error.contains("shorten") && !error.contains("reset"), "{error}");
}
