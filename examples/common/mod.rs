//! The command line of an example in; its flags, values and positional arguments out.
//!
//! By hand, so that the examples add no dependency, and in one place, so that all read their arguments alike.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

/// What can go wrong in an example: everything that prints.
pub type Failure = Box<dyn std::error::Error>;

/// The arguments not yet taken. Take flags and values first, then positional ones, and [`finish`](Args::finish).
pub struct Args(Vec<String>);

/// Runs an example: `--help` prints its usage; a failure prints one line and gives an exit status that is not 0.
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
        // Whoever reads the output has enough of it, as `head` does.
        Err(failure) if is_broken_pipe(&*failure) => ExitCode::SUCCESS,
        Err(failure) => fail(failure),
    }
}

fn is_broken_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    failure.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn fail(failure: impl Display) -> ExitCode {
    eprintln!("error: {failure}");
    ExitCode::FAILURE
}

#[allow(dead_code, reason = "each example compiles this file for itself and uses a part of it")]
impl Args {
    /// Whether this flag was given, as `--flag`.
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

    /// The value of this option, as `--option VALUE` or `--option=VALUE`; `None` where it was not given.
    pub fn value<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let prefix = format!("{name}=");
        let Some(at) = self.0[..self.options_end()].iter().position(|arg| arg == name || arg.starts_with(&prefix))
        else {
            return Ok(None);
        };
        let arg = self.0.remove(at);
        let text = match arg.strip_prefix(&prefix) {
            Some(text) => text.to_owned(),
            None if at < self.0.len() => self.0.remove(at),
            None => return Err(format!("{name} needs a value (see --help)").into()),
        };
        if self.0[..self.options_end()].iter().any(|arg| arg == name || arg.starts_with(&prefix)) {
            return Err(format!("{name} is given twice").into());
        }
        text.parse().map(Some).map_err(|e| format!("{name} {text}: {e}").into())
    }

    /// The value of an option that must be given.
    pub fn required<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<T, Failure> {
        self.value(name)?.ok_or_else(|| format!("{name} is missing (see --help)").into())
    }

    /// The next positional argument, if any; what follows `--` is positional whatever it looks like.
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

    /// Refuses what no one took.
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
