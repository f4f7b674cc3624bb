//! Parses the command line of an example into flags, values and positional arguments.
//!
//! Written by hand so that the examples need no dependency, and shared so that all parse arguments
//! the same way.

use std::{error::Error, fmt::Display, io::Write, process::ExitCode, str::FromStr};

/// Any error in an example.
pub type Failure = Box<dyn Error>;

/// The arguments that were not parsed yet. Parse flags and values first, then positional arguments,
/// then call [`finish`](Args::finish).
pub struct Args(Vec<String>);

/// Runs an example. `--help` prints its usage; an error prints one line and returns a non-zero exit
/// status.
pub fn run(usage: &str, example: impl FnOnce(Args) -> Result<(), Failure>) -> ExitCode {
    let mut args = Args(Vec::new());
    for arg in std::env::args_os().skip(1) {
        match arg.into_string() {
            Ok(arg) => args.0.push(arg),
            Err(arg) => return fail(format!("the argument {arg:?} is not Unicode")),
        }
    }
    if args.flag("--help") || args.flag("-h") {
        return writeln!(std::io::stdout(), "{}", usage.trim()).map_or_else(fail, |()| ExitCode::SUCCESS);
    }
    match example(args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output, such as `head`, has closed it.
        Err(failure) if is_broken_pipe(&*failure) => ExitCode::SUCCESS,
        Err(failure) => fail(failure),
    }
}

fn is_broken_pipe(failure: &(dyn Error + 'static)) -> bool {
    failure.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn fail(failure: impl Display) -> ExitCode {
    eprintln!("error: {failure}");
    ExitCode::FAILURE
}

#[allow(dead_code, reason = "each example compiles this file and uses a part of it")]
impl Args {
    /// Removes the flag `name` and returns whether it was given.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        let end = self.options_end();
        let mut index = 0;
        self.0.retain(|arg| {
            index += 1;
            index > end || arg != name
        });
        self.0.len() < before
    }

    /// Removes the option `name`, as `--option VALUE` or `--option=VALUE`, and returns its value.
    pub fn value<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let prefix = format!("{name}=");
        let is_option = |arg: &String| arg == name || arg.starts_with(&prefix);
        let Some(index) = self.0[..self.options_end()].iter().position(is_option) else {
            return Ok(None);
        };
        let arg = self.0.remove(index);
        let text = match arg.strip_prefix(&prefix) {
            Some(text) => text.to_owned(),
            None if index < self.0.len() => self.0.remove(index),
            None => return Err(format!("{name} needs a value (see --help)").into()),
        };
        if self.0[..self.options_end()].iter().any(is_option) {
            return Err(format!("{name} is given twice").into());
        }
        text.parse().map(Some).map_err(|e| format!("{name} {text}: {e}").into())
    }

    /// Removes the option `name` and returns its value, or an error if it was not given.
    pub fn required<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<T, Failure> {
        self.value(name)?.ok_or_else(|| format!("{name} is missing (see --help)").into())
    }

    /// Removes and returns the next positional argument. All arguments after `--` are positional.
    pub fn positional(&mut self) -> Result<Option<String>, Failure> {
        match self.0.first().map(String::as_str) {
            Some("--") if self.0.len() > 1 => Ok(Some(self.0.remove(1))),
            Some("--") | None => Ok(None),
            Some(arg) if arg.starts_with('-') && arg.len() > 1 => {
                Err(format!("unknown option {arg} (see --help)").into())
            }
            Some(_) => Ok(Some(self.0.remove(0))),
        }
    }

    /// Returns an error if any argument is left.
    pub fn finish(mut self) -> Result<(), Failure> {
        match self.positional()? {
            Some(arg) => Err(format!("unexpected argument {arg} (see --help)").into()),
            None => Ok(()),
        }
    }

    fn options_end(&self) -> usize {
        self.0.iter().position(|arg| arg == "--").unwrap_or(self.0.len())
    }
}
