//! Finds files of a folder that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{Mention, ModulePath, mentions, tokens};

/// The modules that each module uses.
pub type Uses = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// Names at a module: what a `use` declaration there calls them, and their paths.
type Names = BTreeMap<ModulePath, BTreeMap<String, Mention>>;

/// Returns which of the files below the module `room` use which others of it.
///
/// `files` are all files of the crate, as modules and their texts. An item counts for the file that
/// defines it, wherever it is imported from, so a module that only declares and re-exports others
/// is not used by anyone. Modules named `tests` do not count.
pub fn uses_within(room: &[String], files: &[(ModulePath, String)]) -> Uses {
    let files: BTreeMap<_, _> = files.iter().filter(|(place, _)| !is_test(place)).cloned().collect();
    let mentions: Vec<_> = files
        .iter()
        .flat_map(|(place, text)| mentions(text, place).into_iter().map(move |mention| (place, text, mention)))
        .filter(|(_, _, mention)| !is_test(&mention.place))
        .collect();
    let mut names = Names::new();
    for (.., mention) in &mentions {
        if let Some(import) = &mention.import {
            names.entry(mention.place.clone()).or_default().insert(import.name.clone(), mention.clone());
        }
    }
    let resolver = Resolver { files: &files, names: &names };
    let mut uses: Uses = files.keys().filter(|place| place.starts_with(room)).map(|p| (p.clone(), [].into())).collect();
    for (place, text, mention) in mentions {
        if let Some(used) = uses.get_mut(place)
            && !is_mere_re_export(&mention, text)
            && let Some(definer) = resolver.definer(&mention)
            && definer != *place
            && definer.starts_with(room)
        {
            used.insert(definer);
        }
    }
    uses
}

/// Leaves the modules that lie on a circle, or on a way from one circle to another, with what they
/// use of each other.
pub fn circles(mut uses: Uses) -> Uses {
    loop {
        let used: BTreeSet<_> = uses.values().flatten().cloned().collect();
        let left: BTreeSet<_> =
            uses.iter().filter(|(place, of)| !of.is_empty() && used.contains(*place)).map(|(p, _)| p.clone()).collect();
        if left.len() == uses.len() {
            return uses;
        }
        uses.retain(|place, _| left.contains(place));
        uses.values_mut().for_each(|of| of.retain(|place| left.contains(place)));
    }
}

fn is_test(place: &[String]) -> bool {
    place.iter().any(|name| name == "tests")
}

/// Whether the mention is a public import of a name that the file does not use itself.
fn is_mere_re_export(mention: &Mention, text: &str) -> bool {
    let Some(import) = mention.import.as_ref().filter(|import| import.public) else { return false };
    tokens(text).iter().filter(|token| **token == import.name).count() == 1
}

struct Resolver<'f> {
    files: &'f BTreeMap<ModulePath, String>,
    names: &'f Names,
}

impl Resolver<'_> {
    /// Returns the file module that defines the item; `None` for a module, and for another crate's
    /// items.
    fn definer(&self, mention: &Mention) -> Option<ModulePath> {
        let mut path = self.absolute(mention)?;
        // Longer chains of re-exports would be a circle themselves.
        for _ in 0..8 {
            let len = (0..=path.len()).rev().find(|len| self.files.contains_key(&path[..*len]))?;
            let item = path.get(len)?;
            match self.names.get(&path[..len]).and_then(|names| names.get(item)) {
                Some(import) => path = self.absolute(import)?.into_iter().chain(path[len + 1..].to_vec()).collect(),
                None => return Some(path[..len].to_vec()),
            }
        }
        None
    }

    /// Returns the path from the root, also of a path that begins with a child module or an
    /// imported name.
    fn absolute(&self, mention: &Mention) -> Option<ModulePath> {
        if let Some(path) = mention.absolute() {
            return Some(path);
        }
        let (first, rest) = mention.segments.split_first()?;
        // An inline module takes its names from those around it.
        for len in (0..=mention.place.len()).rev() {
            let place = &mention.place[..len];
            let child: ModulePath = place.iter().chain([first]).cloned().collect();
            let imported = self.names.get(place).and_then(|names| names.get(first));
            let base = if self.files.contains_key(&child) {
                Some(child)
            } else {
                imported.filter(|import| import.segments != mention.segments).and_then(|import| self.absolute(import))
            };
            if let Some(base) = base {
                return Some(base.into_iter().chain(rest.iter().cloned()).collect());
            }
            if self.files.contains_key(place) {
                return None;
            }
        }
        None
    }
}
