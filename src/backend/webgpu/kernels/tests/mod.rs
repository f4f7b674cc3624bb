//! Renders and translates every template with every option of its struct both ways, and compares
//! its list of parameters and buffers with the struct.

mod choices;
mod fields;
mod lists;
mod samples;

use std::collections::{BTreeMap, BTreeSet};

use self::{choices::pairwise, fields::Fields, lists::List, samples::Sample};
use super::*;
use crate::{
    DType,
    backend::webgpu::{
        kernel::{Kernel, Workgroups},
        templates::{SOURCES, Templates},
    },
    quant,
};

/// The index of the templates, with the types that they share.
const INDEX: &str = include_str!("../../../../../kernels/README.md");

/// The one function of minijinja that templates call, which counts as a variable that they read.
const FUNCTION: &str = "range";

/// The beginnings of names of buffers that a kernel has for each of its matrices.
const NUMBERED: [&str; 4] = ["wide", "small", "biases", "out"];

/// A template, and the fields, buffers and sources of the samples of its struct.
struct TemplateCase {
    name: &'static str,
    fields: Fields,
    /// The types of the elements of each buffer and whether it is written, by its name with `{n}`
    /// for a number.
    buffers: BTreeMap<String, BTreeSet<(String, bool)>>,
    /// The rendered sources of the samples.
    sources: BTreeSet<String>,
}

fn case<T: Sample + Send + Sync + 'static>(templates: &Templates) -> TemplateCase {
    let mut case =
        TemplateCase { name: T::NAME, fields: Fields::default(), buffers: BTreeMap::new(), sources: BTreeSet::new() };
    for sample in pairwise(T::sample) {
        case.fields.add(&sample);
        for binding in sample.bindings() {
            let prefix = binding.name.trim_end_matches(|c: char| c.is_ascii_digit());
            let name = match NUMBERED.contains(&prefix) {
                true => format!("{prefix}{{n}}"),
                false => binding.name.to_string(),
            };
            case.buffers.entry(name).or_default().insert((binding.element.into(), binding.writes));
        }
        let described = format!("{sample:?}");
        let kernel = Kernel::new(sample, [Workgroups::Fixed(1); 3]);
        case.sources.insert(kernel.source(templates).unwrap_or_else(|error| panic!("{error}\n{described}")));
    }
    case
}

fn cases() -> Vec<TemplateCase> {
    let templates = &Templates::new().unwrap();
    vec![
        case::<Append>(templates),
        case::<Argmax>(templates),
        case::<AttentionCombine>(templates),
        case::<AttentionPrefill>(templates),
        case::<AttentionPrefillCoop>(templates),
        case::<AttentionStep>(templates),
        case::<BestKernel>(templates),
        case::<Combine>(templates),
        case::<DeviationKernel>(templates),
        case::<ElementKernel>(templates),
        case::<GatedDeltaKernel>(templates),
        case::<GatedDeltaChunks>(templates),
        case::<GatedDeltaPass>(templates),
        case::<GroupKernel>(templates),
        case::<GatedKernel>(templates),
        case::<Heads>(templates),
        case::<LayerNormKernel>(templates),
        case::<MatMulCoop>(templates),
        case::<MatMulFew>(templates),
        case::<MatMulTiled>(templates),
        case::<MixStreamsKernel>(templates),
        case::<Route>(templates),
        case::<RowsKernel>(templates),
        case::<ShortConv>(templates),
        case::<StateScanKernel>(templates),
        case::<StepRows>(templates),
    ]
}

fn source(name: &str) -> &'static str {
    SOURCES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no template `{name}`")).1
}

/// Returns the variables that a template and its partials read from outside; for a nested field,
/// the whole path.
fn read_variables(templates: &Templates, name: &str) -> BTreeSet<String> {
    let template = templates.environment().get_template(name).unwrap();
    let mut variables: BTreeSet<_> = template.undeclared_variables(true).into_iter().collect();
    variables.remove(FUNCTION);
    for included in lists::included(source(name)) {
        variables.extend(read_variables(templates, &included));
    }
    let bound = lists::bound(source(name));
    variables.retain(|path| !bound.contains(lists::root(path)));
    variables
}

#[cfg(feature = "_kernel-tests")]
#[test]
fn every_option_of_every_kernel_translates() {
    use crate::backend::webgpu::{test_adapters::ADAPTERS, tests::translate};

    let matrices = &ADAPTERS[1];
    for case in cases() {
        case.sources.iter().for_each(|source| translate(source, matrices));
    }
}

#[test]
fn every_option_has_samples_both_ways() {
    let cases = cases();
    let kernels: BTreeSet<_> = SOURCES.iter().map(|(name, _)| *name).filter(|name| !name.contains('/')).collect();
    assert_eq!(kernels, cases.iter().map(|case| case.name).collect());
    for TemplateCase { name, fields, sources, .. } in &cases {
        assert!(!sources.is_empty(), "{name}");
        for (path, field) in &fields.0 {
            assert_eq!(field.types.len(), 1, "{name}: {path} {field:?}");
            if field.types.contains("bool") {
                assert_eq!(field.values.len(), 2, "{name}: {path} is always {:?}", field.values);
            }
            assert_eq!(
                field.was_none,
                field.was_some,
                "{name}: {path} has no sample {}",
                if field.was_some { "without" } else { "with it" }
            );
        }
    }
}

#[test]
fn templates_list_their_parameters() {
    let shared = lists::shared_types(INDEX);
    for TemplateCase { name, fields, buffers, .. } in cases() {
        let list = List::of(source(name)).unwrap_or_else(|what| panic!("kernels/{name}.wgsl: {what}"));
        let expected = lists::expected(&fields, &shared);
        assert_eq!(list.parameters, expected, "kernels/{name}.wgsl: parameters");
        for (path, kinds) in &list.kinds {
            assert_eq!(*kinds, fields.0[path].values, "kernels/{name}.wgsl: {path}");
        }
        let types: BTreeMap<_, _> = buffers.iter().map(|(name, types)| (name.clone(), lists::buffer(types))).collect();
        assert_eq!(list.buffers, types, "kernels/{name}.wgsl: buffers");
    }
}

#[test]
fn templates_read_what_they_list_and_nothing_else() {
    let templates = Templates::new().unwrap();
    for TemplateCase { name, fields, .. } in cases() {
        let read = read_variables(&templates, name);
        for path in &read {
            let known = path == "bindings" || fields.0.contains_key(path) || lists::is_of_list(path, &fields);
            assert!(known, "kernels/{name}.wgsl reads `{path}`, which its struct lacks");
        }
        let roots: BTreeSet<_> = read.iter().map(|path| lists::root(path)).collect();
        for path in fields.0.keys().filter(|path| !path.contains('.') && !path.contains('[')) {
            assert!(roots.contains(path.as_str()), "kernels/{name}.wgsl does not read `{path}`");
        }
    }
}

#[test]
fn decoders_read_their_matrix_alone() {
    let templates = Templates::new().unwrap();
    let shared = lists::shared_types(INDEX);
    let expected = BTreeMap::from([("matrix".to_string(), "MatrixPlanes".to_string())]);
    for dtype in DType::ALL {
        assert_eq!(List::of(quant::format(*dtype).planes.decoder).unwrap().parameters, expected, "{dtype}");
        let mut read = templates.environment().get_template(dtype.name()).unwrap().undeclared_variables(true);
        read.remove(FUNCTION);
        for path in read {
            let field = path.strip_prefix("matrix.");
            let known = field.is_some_and(|field| shared["MatrixPlanes"].contains_key(field));
            assert!(known, "the decoder of {dtype} reads `{path}`");
        }
    }
}

#[test]
fn partials_list_their_macros_and_parameters() {
    let templates = Templates::new().unwrap();
    for (name, text) in SOURCES.iter().filter(|(name, _)| name.contains('/')) {
        assert!(text.starts_with("// "), "kernels/{name}.wgsl begins with no description");
        assert_eq!(lists::listed_macros(text), lists::macros(text), "kernels/{name}.wgsl: macros");
        if name.starts_with("shared/") {
            let read = templates.environment().get_template(name).unwrap().undeclared_variables(false);
            let listed = List::of(text).map(|list| list.parameters).unwrap_or_default();
            let read = read.into_iter().filter(|name| name != FUNCTION);
            let listed: BTreeSet<_> = listed.keys().map(|path| lists::root(path).to_string()).collect();
            assert_eq!(listed, read.collect(), "kernels/{name}.wgsl: parameters");
        }
    }
}

#[test]
fn the_index_lists_every_kernel() {
    for (name, _) in SOURCES {
        assert!(INDEX.contains(&format!("`{name}.wgsl`")), "kernels/README.md lacks {name}.wgsl");
    }
}
