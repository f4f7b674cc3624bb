//! Tests of runners for async code: results equal those of the runner, and dropping stops requests.

use std::{sync::mpsc, time::Duration};

use futures::{StreamExt, TryStreamExt, executor::block_on, future::join};
use inkstone::{
    AsyncRunner, Error, GenerateOptions, Message, Runner, SamplerOptions, Speculation, SpeculationSummary, StopReason,
    Summary,
    chat::{AnswerEvent, ChatOptions},
};

use crate::support::{
    data,
    gguf_file::Folder,
    on_cpu,
    tiny::{MODELS, with_template},
};

const PROMPT: &str = "Once upon a time";

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    <|im_start|>assistant\n";

fn storyteller() -> Runner {
    on_cpu().from_gguf(data("storyteller/storyteller.gguf")).unwrap()
}

fn short(seed: u64) -> GenerateOptions {
    let sampler = SamplerOptions { seed: Some(seed), ..Default::default() };
    GenerateOptions { sampler, max_tokens: Some(40), ..Default::default() }
}

/// Returns a request for a text that only the end of the context or a stop ends.
fn endless(runner: &Runner) -> GenerateOptions {
    let ends = runner.tokenizer().end_of_generation().iter().map(|&id| (id, f32::NEG_INFINITY)).collect();
    let sampler = SamplerOptions { logit_bias: ends, ..SamplerOptions::greedy() };
    GenerateOptions { sampler, max_tokens: None, ..Default::default() }
}

#[test]
fn async_types_are_send_and_unpin() {
    fn anywhere<T: Send + Sync + Unpin + 'static>() {}
    anywhere::<AsyncRunner>();
    fn movable<T: Send + Unpin + 'static>() {}
    movable::<inkstone::GenerationStream>();
    movable::<inkstone::AnswerStream>();
}

#[test]
fn stream_yields_the_pieces_of_the_generation() {
    let mut runner = storyteller();
    let mut generation = runner.generate(PROMPT, &short(7)).unwrap();
    let pieces: Vec<String> = generation.by_ref().map(Result::unwrap).collect();
    let summary = generation.summary().clone();
    let runner = AsyncRunner::new(storyteller()).unwrap();
    block_on(async {
        let mut stream = runner.generate(PROMPT, &short(7));
        assert!(stream.summary().is_none());
        assert_eq!(stream.by_ref().try_collect::<Vec<_>>().await.unwrap(), pieces);
        let found = stream.summary().unwrap();
        assert_eq!((&found.stop, found.generated_tokens), (&summary.stop, summary.generated_tokens));
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn answer_stream_yields_the_events_of_the_answer() {
    let folder = Folder::new();
    let path = folder.write("chat.gguf", with_template(MODELS[0], TEMPLATE));
    let mut runner = on_cpu().from_gguf(path).unwrap();
    let messages = [Message::user("Hello")];
    let mut answer = runner.chat(&messages, &short(3)).unwrap();
    let text: Vec<String> = answer.by_ref().map(Result::unwrap).collect();
    let message = answer.message();
    assert!(!text.concat().is_empty());
    let runner = AsyncRunner::new(runner).unwrap();
    block_on(async {
        let mut stream = runner.chat(&messages, &short(3));
        assert_eq!(stream.by_ref().try_collect::<Vec<_>>().await.unwrap(), text);
        assert_eq!(stream.message(), message);
        let mut stream = runner.chat_with(&messages, &ChatOptions::default(), &short(3));
        let events: Vec<AnswerEvent> = stream.events().try_collect().await.unwrap();
        assert_eq!(events, text.into_iter().map(AnswerEvent::Text).collect::<Vec<_>>());
        assert_eq!(stream.message(), message);
        assert_eq!(stream.summary().unwrap().stop, StopReason::TokenLimit);
    });
}

/// The statistics of streams are those of the runner's iterators, after every piece.
#[test]
fn streams_count_drafts() {
    let folder = Folder::new();
    let path = folder.write("chat.gguf", with_template(MODELS[0], TEMPLATE));
    let load = || on_cpu().draft(&path).without_ngrams().from_gguf(&path).unwrap();
    let options = GenerateOptions { speculation: Speculation::Exactly(3), ..short(7) };
    let messages = [Message::user("Hello")];
    let counts = |summary: &Summary| {
        let SpeculationSummary { steps, drafted, accepted, accepted_by_position, off, .. } = &summary.speculation;
        let drafts = (*steps, *drafted, *accepted, accepted_by_position.clone(), off.clone());
        (summary.stop.clone(), summary.prompt_tokens, summary.generated_tokens, drafts)
    };
    let (mut texts, mut runner) = ([vec![], vec![]], load());
    let mut generation = runner.generate(PROMPT, &options).unwrap();
    while generation.next().is_some() {
        texts[0].push(counts(generation.summary()));
    }
    texts[0].push(counts(generation.summary()));
    let mut answer = runner.chat(&messages, &options).unwrap();
    while answer.next().is_some() {
        texts[1].push(counts(answer.summary()));
    }
    texts[1].push(counts(answer.summary()));
    let [text, answer] = &texts;
    assert!(text.len() > 4 && answer.len() > 4);
    assert!(text.iter().chain(answer).all(|(.., drafts)| drafts.1 >= drafts.2));
    let runner = AsyncRunner::new(load()).unwrap();
    block_on(async {
        let mut stream = runner.generate(PROMPT, &options);
        let mut found = vec![];
        while stream.next().await.is_some() {
            found.push(counts(stream.summary().unwrap()));
        }
        found.push(counts(stream.summary().unwrap()));
        assert_eq!(&found, text);
        let mut stream = runner.chat(&messages, &options);
        assert!(stream.summary().is_none());
        let mut found = vec![];
        while stream.events().next().await.is_some() {
            found.push(counts(stream.summary().unwrap()));
        }
        found.push(counts(stream.summary().unwrap()));
        assert_eq!(&found, answer);
        let summary = &stream.summary().unwrap().speculation;
        assert!(summary.drafted > 0 && summary.drafting + summary.verifying > Duration::ZERO, "{summary:?}");
    });
}

#[test]
fn dropped_stream_stops_its_generation() {
    let runner = AsyncRunner::new(storyteller()).unwrap();
    let options = endless(runner.model());
    block_on(async {
        let mut stream = runner.generate(PROMPT, &options);
        stream.next().await.unwrap().unwrap();
        drop(stream);
        let held = runner.call(|runner| Ok(runner.tokens().len())).await.unwrap();
        assert!(held < runner.model().context_length(), "it went on to the end");
    });
}

#[test]
fn stop_handle_ends_a_stream_with_a_summary() {
    let runner = AsyncRunner::new(storyteller()).unwrap();
    let options = endless(runner.model());
    block_on(async {
        let mut stream = runner.generate(PROMPT, &options);
        stream.next().await.unwrap().unwrap();
        stream.stop_handle().stop();
        while let Some(piece) = stream.next().await {
            piece.unwrap();
        }
        assert_eq!(stream.summary().unwrap().stop, StopReason::Caller);
    });
}

/// Requests that wait behind a blocked one do not run if they are dropped first.
#[test]
fn requests_dropped_before_they_start_do_not_run() {
    let runner = AsyncRunner::new(storyteller()).unwrap();
    let (go_on, wait) = mpsc::channel::<()>();
    let held_up = runner.call(move |_| {
        wait.recv().unwrap();
        Ok(())
    });
    drop(runner.call(|_| -> inkstone::Result<()> { panic!("was done") }));
    drop(runner.generate(PROMPT, &short(1)));
    go_on.send(()).unwrap();
    block_on(async {
        held_up.await.unwrap();
        assert_eq!(runner.call(|runner| Ok(runner.tokens().len())).await.unwrap(), 0);
    });
}

#[test]
fn requests_run_in_order_regardless_of_polling() {
    let runner = AsyncRunner::new(storyteller()).unwrap();
    let texts = [1, 2].map(|seed| storyteller().generate(PROMPT, &short(seed)).unwrap().map(Result::unwrap).collect());
    let [first, second]: [String; 2] = texts;
    block_on(async {
        let (one, two) = (runner.generate(PROMPT, &short(1)), runner.clone().generate(PROMPT, &short(2)));
        assert_eq!(two.try_collect::<String>().await.unwrap(), second);
        assert_eq!(one.try_collect::<String>().await.unwrap(), first);
    });
}

#[test]
fn another_runner_has_its_own_sequence() {
    block_on(async {
        let runner = AsyncRunner::new(storyteller()).unwrap();
        let other = runner.another().await.unwrap();
        let (a, b) = (runner.generate(PROMPT, &short(1)), other.generate("The hen", &short(2)));
        let (a, b) = join(a.try_collect::<String>(), b.try_collect::<String>()).await;
        let alone = |prompt, seed| storyteller().generate(prompt, &short(seed)).unwrap().map(Result::unwrap).collect();
        let expected: [String; 2] = [alone(PROMPT, 1), alone("The hen", 2)];
        assert_eq!([a.unwrap(), b.unwrap()], expected);
        let last = runner.call(|runner| Ok(runner.tokens().to_vec())).await.unwrap();
        assert_ne!(last, other.call(|runner| Ok(runner.tokens().to_vec())).await.unwrap());
        drop(runner);
        assert!(other.generate(PROMPT, &short(1)).try_collect::<String>().await.is_ok());
    });
}

#[test]
fn errors_are_items_and_the_runner_continues() {
    block_on(async {
        let runner = AsyncRunner::load(|| Ok(storyteller())).await.unwrap();
        let mut stream = runner.generate("", &short(1));
        assert!(matches!(stream.next().await, Some(Err(Error::Argument { name: "prompt", .. }))));
        assert!(stream.next().await.is_none() && stream.summary().is_none());
        let mut answer = runner.chat(&[], &short(1));
        assert!(matches!(answer.next().await, Some(Err(Error::Argument { name: "messages", .. }))));
        assert!(answer.next().await.is_none());
        assert!(runner.generate(PROMPT, &short(1)).try_collect::<String>().await.is_ok());
        let missing = AsyncRunner::load(|| Runner::from_gguf("no such file.gguf")).await;
        assert!(matches!(missing, Err(Error::Io { .. })));
    });
}

#[test]
fn panic_is_an_error_for_all_pending_requests() {
    block_on(async {
        let runner = AsyncRunner::new(storyteller()).unwrap();
        let panicked = runner.call(|_| -> inkstone::Result<()> { panic!("on purpose") });
        let mut waiting = runner.generate(PROMPT, &short(1));
        assert!(matches!(panicked.await, Err(Error::Thread(_))));
        assert!(matches!(waiting.next().await, Some(Err(Error::Thread(_)))));
        assert!(waiting.next().await.is_none());
        assert!(matches!(runner.chat(&[], &short(1)).next().await, Some(Err(Error::Thread(_)))));
        assert!(matches!(AsyncRunner::load(|| panic!("on purpose")).await, Err(Error::Thread(_))));
    });
}

#[cfg(feature = "constrained")]
#[test]
fn typed_values_are_returned_by_futures() {
    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    enum Kind {
        Fox,
        Hen,
    }
    block_on(async {
        let runner = AsyncRunner::new(storyteller()).unwrap();
        let kind: Kind = runner.generate_as(PROMPT, &short(1)).await.unwrap();
        assert!(matches!(kind, Kind::Fox | Kind::Hen));
        let refused = runner.chat_as::<Kind>(&[], &ChatOptions::default(), &short(1)).await;
        assert!(matches!(refused, Err(Error::Argument { name: "messages", .. })));
        drop(runner.generate_as::<String>(PROMPT, &GenerateOptions::default()));
        assert!(runner.generate(PROMPT, &short(1)).try_collect::<String>().await.is_ok());
    });
}
