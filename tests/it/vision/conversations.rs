//! Conversations with images, with the repository's model that sees: templates, answers, the reuse
//! of images, several texts at once, and errors.

use std::fs;

use inkstone::{
    Error, GenerateOptions, GenerateRequest, Image, LmRunner, Message, PromptPart, Runner, SamplerOptions, StopReason,
    chat::{ChatOptions, ChatTemplate, Part},
    tokenizer::Tokenizer,
};
use serde_json::Value;

use crate::support::{data, gguf_file::Folder, on_cpu};

const QUESTION: &str = "What is in the picture?";

fn seer() -> Runner {
    on_cpu().vision(data("seer/mmproj-seer.gguf")).from_gguf(data("seer/seer.gguf")).unwrap()
}

fn expected() -> Value {
    serde_json::from_slice(&fs::read(data("seer/expected.json")).unwrap()).unwrap()
}

fn picture(file: &str) -> Image {
    Image::open(data("seer/held_out").join(file)).unwrap()
}

fn greedy() -> GenerateOptions {
    GenerateOptions { sampler: SamplerOptions::greedy(), max_tokens: Some(64), ..Default::default() }
}

/// Returns the message of a question about a picture.
fn about(file: &str, question: &str) -> Message {
    Message::user([picture(file).into(), question.into()])
}

fn answer(runner: &mut Runner, messages: &[Message]) -> String {
    runner.chat(messages, &greedy()).unwrap().into_text().unwrap()
}

/// Returns the expected answer about the picture with this number.
fn described(expected: &Value, number: usize) -> &str {
    expected["pictures"][number]["text"].as_str().unwrap()
}

/// Returns a message of the references, in which images have no pixels.
fn message(reference: &Value) -> Message {
    let content = match &reference["content"] {
        Value::String(text) => return Message::new(reference["role"].as_str().unwrap(), text),
        content => content.as_array().unwrap().iter(),
    };
    let parts = content.map(|part| match part["text"].as_str() {
        Some(text) => Part::text(text),
        None => Part::Image(picture("00.png")),
    });
    Message::new(reference["role"].as_str().unwrap(), parts.collect::<Vec<_>>())
}

#[test]
fn templates_mark_images_as_transformers_does() {
    let runner = seer();
    let (template, tokenizer) = (runner.chat_template().unwrap(), runner.tokenizer());
    let expected = expected();
    for case in expected["chat"].as_array().unwrap() {
        let messages: Vec<_> = case["messages"].as_array().unwrap().iter().map(message).collect();
        let options = ChatOptions::default().add_generation_prompt(case["add_generation_prompt"].as_bool().unwrap());
        let prompt = template.prompt(&messages, &options, tokenizer).unwrap();
        assert_eq!(prompt.text, case["text"].as_str().unwrap());
        // The references have the mark's id in the place of an image.
        let mut ids = prompt.ids.clone();
        prompt.images.iter().rev().for_each(|(at, _)| ids.insert(*at, 510));
        assert_eq!(serde_json::to_value(ids).unwrap(), case["ids"], "{}", prompt.text);
    }
}

#[test]
fn answers_about_one_and_two_pictures_are_those_of_transformers() {
    let (mut runner, expected) = (seer(), expected());
    for picture in &expected["pictures"].as_array().unwrap()[..8] {
        let file = picture["file"].as_str().unwrap();
        assert_eq!(answer(&mut runner, &[about(file, QUESTION)]), picture["text"].as_str().unwrap());
        for question in picture["questions"].as_array().unwrap() {
            let found = answer(&mut runner, &[about(file, question["question"].as_str().unwrap())]);
            assert_eq!(found, question["answer"].as_str().unwrap(), "{file}: {question}");
        }
    }
    for pair in expected["pairs"].as_array().unwrap() {
        let files = pair["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap());
        let mut parts: Vec<Part> = files.map(|file| picture(file).into()).collect();
        parts.push(pair["question"].as_str().unwrap().into());
        let mut generation = runner.chat(&[Message::user(parts)], &greedy()).unwrap();
        let text = generation.by_ref().collect::<Result<String, _>>().unwrap();
        assert_eq!(text, pair["answer"].as_str().unwrap());
        assert_eq!(generation.summary().prompt_tokens as u64, pair["prompt_tokens"].as_u64().unwrap());
    }
}

#[test]
fn a_conversation_that_goes_on_computes_only_its_new_messages() {
    let (mut runner, expected) = (seer(), expected());
    let mut messages = vec![about("00.png", QUESTION)];
    let mut first = runner.chat(&messages, &greedy()).unwrap();
    first.by_ref().for_each(|piece| drop(piece.unwrap()));
    let (held, generated) = (first.summary().prompt_tokens, first.summary().generated_tokens);
    messages.extend([first.message(), Message::user("How many blue shapes are there?")]);
    let mut second = runner.chat(&messages, &greedy()).unwrap();
    let said: String = second.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(said, "There are no blue shapes.");
    assert!(second.summary().cached_tokens >= held + generated, "{:?}", second.summary());
    // Another answer to the first question: only the tokens after the picture are computed.
    let mut again = runner.chat(&messages[..1], &greedy()).unwrap();
    assert_eq!(again.by_ref().collect::<Result<String, _>>().unwrap(), described(&expected, 0));
    assert_eq!(again.summary().cached_tokens, held - 1);
    // Another picture of the same size in its place is seen.
    let size = |file: &str| (picture(file).width(), picture(file).height());
    let same = (1..50).map(|number| format!("{number:02}.png")).find(|file| size(file) == size("00.png")).unwrap();
    let other = answer(&mut runner, &[about(&same, QUESTION)]);
    assert_eq!(other, described(&expected, same[..2].parse().unwrap()));
}

#[test]
fn other_handles_have_a_picture_that_was_seen() {
    let (runner, expected) = (seer(), expected());
    let file = "03.png";
    let mut first = runner.clone();
    assert_eq!(answer(&mut first, &[about(file, QUESTION)]), described(&expected, 3));
    for question in expected["pictures"][3]["questions"].as_array().unwrap() {
        let mut other = runner.clone();
        let messages = [about(file, question["question"].as_str().unwrap())];
        let mut generation = other.chat(&messages, &greedy()).unwrap();
        let found = generation.by_ref().collect::<Result<String, _>>().unwrap();
        assert_eq!(found, question["answer"].as_str().unwrap());
        assert!(generation.summary().cached_tokens > 60, "{:?}", generation.summary());
    }
    // Other pictures in its place are seen, of whatever size.
    for (number, name) in [(4, "04.png"), (5, "05.png")] {
        assert_eq!(answer(&mut runner.clone(), &[about(name, QUESTION)]), described(&expected, number));
    }
}

/// Returns the logits after a prompt with this mark before each picture.
fn logits(runner: &mut Runner, prompt: &str, files: &[&str]) -> Vec<f32> {
    let images: Vec<_> = files.iter().map(|file| picture(file)).collect();
    runner.prefill_images(prompt, &images).unwrap().to_vec()
}

#[test]
fn cached_chunked_and_recomputed_prompts_give_the_same_logits() {
    let two = "<|im_start|>user\n<__media__> and <__media__>What is in the second picture?<|im_end|>\n";
    let files = ["04.png", "05.png"];
    let whole = logits(&mut seer(), two, &files);
    let vision = || on_cpu().vision(data("seer/mmproj-seer.gguf"));
    for chunk in [1, 7, 64] {
        let mut runner = vision().prefill_chunk(chunk).from_gguf(data("seer/seer.gguf")).unwrap();
        assert_eq!(logits(&mut runner, two, &files), whole, "in chunks of {chunk}");
        // The first picture is shared, the second is not.
        logits(&mut runner, two, &["04.png", "06.png"]);
        assert_eq!(logits(&mut runner, two, &files), whole, "after another picture");
        // A truncation within a picture removes all of it.
        let within = runner.tokens().len() / 2 + 10;
        runner.truncate(within).unwrap();
        assert!(runner.tokens().len() <= within);
        assert_eq!(logits(&mut runner, two, &files), whole, "after a truncation");
    }
    let mut recomputing = vision().recompute(true).from_gguf(data("seer/seer.gguf")).unwrap();
    assert_eq!(logits(&mut recomputing, two, &files), whole);
}

#[test]
fn several_texts_with_and_without_images_are_generated_together() {
    let (mut runner, expected) = (seer(), expected());
    let template = runner.chat_template().unwrap().clone();
    let tokenizer = runner.tokenizer().clone();
    let prompt = |message: Message| template.prompt(&[message], &ChatOptions::default(), &tokenizer).unwrap();
    let messages =
        [about("01.png", QUESTION), Message::user("Hello!"), about("02.png", QUESTION), about("01.png", QUESTION)];
    let alone: Vec<_> = messages.iter().map(|message| answer(&mut runner, std::slice::from_ref(message))).collect();
    let requests = messages.map(|message| GenerateRequest::new(prompt(message), greedy()));
    let texts = runner.generate_many(requests, |_, _| true).unwrap();
    assert_eq!(texts.iter().map(|text| text.text.as_str()).collect::<Vec<_>>(), alone);
    assert_eq!([&alone[0], &alone[2]], [described(&expected, 1), described(&expected, 2)]);
    // Many questions about one picture: the picture is computed once.
    let questions = expected["pictures"][3]["questions"].as_array().unwrap();
    let text = |question: &Value, key: &str| question[key].as_str().unwrap().to_owned();
    let requests = questions.iter().map(|question| (prompt(about("03.png", &text(question, "question"))), greedy()));
    let texts = runner.generate_many(requests, |_, _| true).unwrap();
    for (found, question) in texts.iter().zip(questions) {
        assert_eq!(found.text, text(question, "answer"));
        assert!(found.summary.cached_tokens > 60, "{:?}", found.summary);
    }
}

#[test]
fn forks_share_a_picture() {
    let (mut runner, expected) = (seer(), expected());
    let start = "<|im_start|>user\n<__media__>";
    logits(&mut runner, &format!("{start}What"), &["07.png"]);
    let sequence = runner.sequence();
    let decoder = runner.decoder_mut();
    let fork = decoder.fork(sequence).unwrap();
    let held = decoder.tokens(fork).unwrap().len();
    // Within the picture, before its end: only the tokens before the picture stay.
    decoder.truncate(fork, held - 10).unwrap();
    assert!(decoder.tokens(fork).unwrap().len() < 10);
    decoder.close(fork).unwrap();
    let mut clone = runner.clone();
    let both = [&mut runner, &mut clone].map(|runner| answer(runner, &[about("07.png", QUESTION)]));
    assert_eq!(both, [described(&expected, 7); 2]);
}

#[test]
fn prompts_of_parts_take_images_and_the_text_around_them_once() {
    let (mut runner, expected) = (seer(), expected());
    let image = || PromptPart::from(picture("08.png"));
    let [user, end] = ["<|im_start|>user\n", "What is in the picture?<|im_end|>\n<|im_start|>assistant\n"];
    let marked = [format!("{user}<|vision_start|>"), format!("<|vision_end|>{end}")];
    let prompts: [[PromptPart; 3]; 2] =
        [[user.into(), image(), end.into()], [marked[0].as_str().into(), image(), marked[1].as_str().into()]];
    for prompt in prompts {
        let mut generation = runner.generate(prompt, &greedy()).unwrap();
        let text = generation.by_ref().collect::<Result<String, _>>().unwrap();
        assert_eq!(text, described(&expected, 8));
        assert_eq!(
            generation.summary().prompt_tokens as u64,
            expected["pictures"][8]["prompt_tokens"].as_u64().unwrap()
        );
    }
}

#[test]
fn progress_counts_the_rows_of_images_and_can_stop_the_encoder() {
    let expected = expected();
    let messages = [about("09.png", QUESTION)];
    let mut whole = vec![];
    let mut runner = seer();
    let mut answer = runner.chat(&messages, &greedy()).unwrap();
    let recorded = |done, total| {
        whole.push((done, total));
        true
    };
    answer.prefill(recorded).unwrap();
    let tokens = answer.summary().prompt_tokens;
    let (_, total) = whole[0];
    assert!(total > tokens + 60 && total < 2 * tokens, "{whole:?}");
    assert!(whole.is_sorted() && whole.iter().all(|(_, all)| *all == total), "{whole:?}");
    assert!(whole.len() > 20, "the encoder has five layers: {whole:?}");
    assert_eq!(*whole.last().unwrap(), (total, total));
    // Stopped at any call, the generation ends, and the next one is right.
    for stop in [0, 1, 7, 20, whole.len() - 2] {
        let mut runner = seer();
        let mut stopped = runner.chat(&messages, &greedy()).unwrap();
        let mut calls = 0;
        let counted = |_, _| {
            calls += 1;
            calls <= stop
        };
        stopped.prefill(counted).unwrap();
        assert_eq!(stopped.summary().stop, StopReason::Caller);
        assert!(stopped.next().is_none());
        assert_eq!(calls, stop + 1);
        assert_eq!(self::answer(&mut runner, &messages), described(&expected, 9), "after a stop at call {stop}");
    }
    let mut runner = seer();
    let mut stopped = runner.chat(&messages, &greedy()).unwrap();
    stopped.stop_handle().stop();
    assert!(stopped.next().is_none());
    assert_eq!(stopped.summary().stop, StopReason::Caller);
}

#[test]
fn images_that_cannot_be_taken_are_errors_and_change_nothing() {
    let without = on_cpu().without_vision().from_gguf(data("seer/seer.gguf")).unwrap();
    let mut runner = without;
    runner.prefill(&[1, 2, 3]).unwrap();
    let error = runner.chat(&[about("00.png", QUESTION)], &greedy()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported(what) if what.contains("vision")), "{error}");
    assert_eq!(runner.tokens(), [1, 2, 3]);
    let mut runner = seer();
    runner.prefill(&[1, 2, 3]).unwrap();
    let line = Image::from_rgb(vec![0; 3 * 60_000], 60_000, 1).unwrap();
    let error = runner.chat(&[Message::user("What?").image(line)], &greedy()).unwrap_err();
    assert!(matches!(&error, Error::Image { .. }), "{error}");
    let large = Image::from_rgb(vec![0; 3 * 4000 * 3000], 4000, 3000).unwrap();
    let error = runner.chat(&[Message::user("What?").image(large)], &greedy()).unwrap_err();
    assert!(matches!(&error, Error::ContextFull { .. } | Error::Image { .. }), "{error}");
    assert_eq!(runner.tokens(), [1, 2, 3]);
}

/// Returns the prompt of a message with a picture between two texts.
fn rendered(template: &str, tokenizer: &Tokenizer) -> Result<inkstone::chat::RenderedPrompt, Error> {
    let message = Message::user("see <|image_pad|>").image(picture("00.png")).text("now");
    ChatTemplate::new(template, "", "").unwrap().prompt(&[message], &ChatOptions::default(), tokenizer)
}

#[test]
fn templates_for_text_alone_take_images_too_and_none_may_be_left_out() {
    let runner = seer();
    let tokenizer = runner.tokenizer();
    // Text in a message that looks like the mark is text; each part has a line.
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let prompt = rendered(plain, tokenizer).unwrap();
    assert_eq!(prompt.images.len(), 1);
    let at = prompt.images[0].0;
    assert_eq!(tokenizer.decode(&prompt.ids[..at]).unwrap(), "see <|image_pad|>\n");
    assert_eq!(tokenizer.decode(&prompt.ids[at..]).unwrap(), "\nnow");
    let both = "{% for m in messages %}{% for p in m.content %}{{ '<|image_pad|>' if p.type == 'image' else p.text }}\
                {% endfor %}{% endfor %}";
    let prompt = rendered(both, tokenizer).unwrap();
    assert_eq!(tokenizer.decode(&prompt.ids[..prompt.images[0].0]).unwrap(), "see <|image_pad|>");
    for (template, what) in [
        ("{% for m in messages %}{{ m.role }}{% endfor %}", "wrote 0 of the conversation's 1 images"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "wrote 2 of the conversation's 1 images"),
    ] {
        let error = rendered(template, tokenizer).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn gemma_3_has_empty_lines_around_an_image() {
    let runner = seer();
    let template = "{% for m in messages %}{% for p in m.content %}{{ '<start_of_image>' if p.type == 'image' else p.text }}\
                    {% endfor %}{% endfor %}";
    let prompt = rendered(template, runner.tokenizer()).unwrap();
    let at = prompt.images[0].0;
    let [before, after] = [&prompt.ids[..at], &prompt.ids[at..]].map(|ids| runner.tokenizer().decode(ids).unwrap());
    assert_eq!([before.as_str(), after.as_str()], ["see <|image_pad|>\n\n", "\n\nnow"]);
}

#[test]
fn saved_conversations_keep_their_pictures() {
    let messages = vec![about("00.png", QUESTION), Message::assistant("Nothing.")];
    let saved = serde_json::to_string(&messages).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Message>>(&saved).unwrap(), messages);
    for broken in [
        r#"{"type": "image", "width": 1, "height": 1, "rgb": "AAA"}"#,
        r#"{"type": "image", "width": 2, "height": 1, "rgb": "AAAA"}"#,
        r#"{"type": "image", "width": 0, "height": 0, "rgb": ""}"#,
        r#"{"type": "image", "width": 1, "height": 1, "rgb": "*"}"#,
    ] {
        assert!(serde_json::from_str::<Part>(broken).is_err(), "{broken}");
    }
    let whole: Part = serde_json::from_str(r#"{"type": "image", "width": 1, "height": 1, "rgb": "AQID"}"#).unwrap();
    assert_eq!(whole, Part::Image(Image::from_rgb([1, 2, 3], 1, 1).unwrap()));
}

#[cfg(feature = "async")]
#[test]
fn async_runners_see() {
    use futures::executor::block_on;
    use inkstone::AsyncRunner;

    let expected = expected();
    let runner = AsyncRunner::new(seer()).unwrap();
    let stream = runner.chat(&[about("10.png", QUESTION)], &greedy());
    let pieces: Vec<_> = futures::executor::block_on_stream(stream).collect::<Result<_, _>>().unwrap();
    assert_eq!(pieces.concat(), described(&expected, 10));
    let options = greedy();
    let parts: [PromptPart; 2] = [picture("11.png").into(), "What".into()];
    let direct = seer().generate(parts.clone(), &options).unwrap().into_text().unwrap();
    let streamed: String =
        futures::executor::block_on_stream(runner.generate(parts, &options)).collect::<Result<_, _>>().unwrap();
    assert_eq!(streamed, direct);
    let text = block_on(runner.call(|runner| Ok(answer(runner, &[about("12.png", QUESTION)])))).unwrap();
    assert_eq!(text, described(&expected, 12));
}

#[cfg(feature = "constrained")]
#[test]
fn values_of_types_are_read_from_pictures() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Seen {
        red: bool,
    }
    let mut runner = seer();
    let parts: [PromptPart; 2] = [picture("13.png").into(), "{".into()];
    let seen: Seen = runner.generate_as(parts, &greedy()).unwrap();
    let same: Seen =
        runner.chat_as(&[about("13.png", "Is there a red shape?")], &ChatOptions::default(), &greedy()).unwrap();
    // The model was not trained to write JSON; the grammar makes it.
    assert!([true, false].contains(&seen.red) && [true, false].contains(&same.red));
}

/// Returns a folder with the model that sees and these files of vision encoders.
fn folder_with(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    folder.write("seer.gguf", fs::read(data("seer/seer.gguf")).unwrap());
    for (name, from) in files {
        folder.write(name, fs::read(data(from)).unwrap());
    }
    folder
}

fn load(folder: &Folder) -> Result<Runner, Error> {
    on_cpu().from_gguf(folder.path().join("seer.gguf"))
}

#[test]
fn the_only_encoder_beside_a_model_is_found() {
    const ENCODER: &str = "seer/mmproj-seer.gguf";
    let mut runner = load(&folder_with(&[("mmproj-x-F16.gguf", ENCODER), ("other.gguf", ENCODER)])).unwrap();
    assert_eq!(answer(&mut runner, &[about("00.png", QUESTION)]), described(&expected(), 0));
    let several = folder_with(&[("mmproj-a.gguf", ENCODER), ("mmproj-b.gguf", ENCODER)]);
    let error = load(&several).unwrap_err().to_string();
    assert!(error.contains("mmproj-a.gguf") && error.contains("mmproj-b.gguf"), "{error}");
    let chosen =
        on_cpu().vision(several.path().join("mmproj-b.gguf")).from_gguf(several.path().join("seer.gguf")).unwrap();
    assert!(chosen.supports_multimodal());
    assert!(!on_cpu().without_vision().from_gguf(several.path().join("seer.gguf")).unwrap().supports_multimodal());
    // A file of another model: text works, and the error for images gives the reason.
    let mut other = load(&folder_with(&[("mmproj-x.gguf", "storyteller/storyteller.gguf")])).unwrap();
    let text = answer(&mut other, &[Message::user("Hello!")]);
    assert_eq!(text, answer(&mut seer(), &[Message::user("Hello!")]));
    let error = other.chat(&[about("00.png", QUESTION)], &greedy()).unwrap_err().to_string();
    assert!(error.contains("mmproj-x.gguf") && error.contains("cannot be used"), "{error}");
    let error = load(&folder_with(&[])).unwrap().chat(&[about("00.png", QUESTION)], &greedy()).unwrap_err();
    assert!(error.to_string().contains("no file `mmproj*.gguf`"), "{error}");
}

/// A session has no images, but the text before the first one can be saved.
#[test]
fn a_sequence_with_an_image_is_not_saved() {
    let (mut runner, mut session) = (seer(), vec![]);
    answer(&mut runner, &[about("00.png", QUESTION)]);
    let error = runner.save(&mut session).unwrap_err();
    assert!(matches!(error, Error::Session(_)) && error.to_string().contains("image at token"), "{error}");
    let start = error.to_string().split_once("at token ").unwrap().1.split(':').next().unwrap().parse().unwrap();
    runner.truncate(start).unwrap();
    runner.save(&mut session).unwrap();
    let held = runner.tokens().to_vec();
    let mut other = seer();
    other.restore(&session[..]).unwrap();
    assert_eq!(other.tokens(), held);
    assert_eq!(answer(&mut other, &[about("00.png", QUESTION)]), answer(&mut runner, &[about("00.png", QUESTION)]));
}
