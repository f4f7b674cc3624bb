//! Tests of scores of several labels after a common prefix, against scores of single labels.

use inkstone::{Decoder, Error, Runner};

use crate::support::{
    on_cpu,
    tiny::{MODELS, RECURRENT, Tiny},
};

fn load(tiny: Tiny) -> Runner {
    on_cpu().from_gguf(tiny.path()).unwrap()
}

#[test]
fn score_many_matches_single_scores() {
    let labels = [
        " a hen",
        "",
        " and a hen",
        " a",
        " a henhouse",
        " owl",
        "es",
        " the fox and the hen and the owl went to the wood",
    ];
    let labels: Vec<_> = labels.into_iter().filter(|label| !label.is_empty()).collect();
    for tiny in MODELS {
        let mut runner = load(tiny);
        for prefix in ["the fox", "the quick brown fox jumps over the lazy dog and then sees"] {
            let together = runner.score_many(prefix, &labels, 2).unwrap();
            let before = runner.tokens().to_vec();
            assert!(runner.tokenizer().encode_prompt(prefix).unwrap().starts_with(&before) && !before.is_empty());
            let mut fresh = load(tiny);
            for (label, together) in labels.iter().zip(&together) {
                assert_eq!(together, &fresh.score(prefix, *label, 2).unwrap(), "{}: {label}", tiny.0);
            }
        }
    }
}

#[test]
fn score_many_accepts_many_id_labels() {
    let mut runner = load(MODELS[0]);
    let prefix: Vec<u32> = (10..40).collect();
    let labels: Vec<Vec<u32>> = (0..50).map(|n| (n..n + 1 + n % 23).collect()).collect();
    let together = runner.score_many(&prefix, &labels, 0).unwrap();
    assert_eq!(runner.tokens(), prefix);
    for (label, together) in labels.iter().zip(&together) {
        assert_eq!(together, &runner.score_ids(&[prefix.as_slice(), label].concat(), prefix.len(), 0).unwrap());
    }
    assert!(runner.score_many(&prefix, Vec::<&str>::new(), 0).unwrap().is_empty());
    let open = open_sequences(runner.decoder_mut());
    assert_eq!(open, 1);
}

#[test]
fn score_many_works_within_a_memory_limit() {
    for tiny in [MODELS[0], RECURRENT] {
        let builder = on_cpu().context_length(130).prefill_chunk(16);
        let limit = builder.plan(tiny.path()).unwrap().total();
        let mut runner = builder.memory_limit(limit).from_gguf(tiny.path()).unwrap();
        let prefix: Vec<u32> = (10..70).collect();
        // The last label ends at the end of the context.
        let labels = (0..20).map(|n| vec![n, n + 1, n + 2]).chain([(0..70).collect()]);
        let labels: Vec<Vec<u32>> = labels.collect();
        let together = runner.score_many(&prefix, &labels, 0).unwrap();
        for (label, together) in labels.iter().zip(&together) {
            let alone = runner.score_ids(&[prefix.as_slice(), label].concat(), prefix.len(), 0).unwrap();
            assert_eq!(together, &alone, "{}", tiny.0);
        }
        assert_eq!(open_sequences(runner.decoder_mut()), 1);
    }
}

#[test]
fn invalid_labels_are_refused_by_index() {
    let mut runner = load(MODELS[0]);
    let empty = runner.score_many("the fox", [" a", ""], 0).unwrap_err();
    assert!(
        matches!(&empty, Error::Request { index: 1, error } if matches!(**error, Error::Argument { .. })),
        "{empty}"
    );
    let unknown: [&[u32]; 2] = [&[1], &[9999]];
    assert!(matches!(runner.score_many("the fox", unknown, 0), Err(Error::Request { index: 1, .. })));
    assert!(runner.tokens().is_empty());
}

fn open_sequences(decoder: &Decoder) -> usize {
    let text = format!("{decoder:?}");
    let (_, rest) = text.split_once("sequences: ").unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}
