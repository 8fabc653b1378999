//! Logs of the process: one subscriber, on stderr, because stdout belongs to results. And its
//! [`metrics`].

pub mod metrics;

use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object in a line, for machines.
    Json,
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(name: &str) -> Result<Self, TelemetryError> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(TelemetryError::Format(name.into())),
        }
    }
}

/// Why logging cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// Not a filter.
    #[error(
        "log filter {filter:?}: {message}; give a level (error, warn, info, debug, trace) or target=level, separated by commas"
    )]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        message: String,
    },
    /// Not a format.
    #[error("log format {0:?} is neither text nor json")]
    Format(String),
}

/// Starts to log what `filter` lets pass, such as `info` or `info,tulip=debug`, to stderr.
///
/// Returns whether logging was set up here: `false` when the process logs already, whoever set it
/// up; nothing changes then.
///
/// # Errors
/// The filter cannot be understood; also when the process logs already.
pub fn init(filter: &str, format: LogFormat) -> Result<bool, TelemetryError> {
    let filter = parse(filter)?;
    let colours = io::stderr().is_terminal();
    Ok(subscriber(filter, format, colours, io::stderr)
        .try_init()
        .is_ok())
}

/// A misspelled level is a legal target name to the filter's own grammar, and would silence
/// everything: so what stands alone must be a level.
fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    let refused = |message: String| TelemetryError::Filter {
        filter: filter.into(),
        message,
    };
    for directive in filter.split(',').map(str::trim) {
        let level = directive.rsplit('=').next().unwrap_or_default();
        if tracing_subscriber::filter::LevelFilter::from_str(level).is_err() || level.is_empty() {
            return Err(refused(format!("{level:?} is no level")));
        }
    }
    EnvFilter::try_new(filter).map_err(|error| refused(error.to_string()))
}

fn subscriber<W>(
    filter: EnvFilter,
    format: LogFormat,
    colours: bool,
    writer: W,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    match format {
        LogFormat::Text => Box::new(builder.with_ansi(colours).finish()),
        LogFormat::Json => Box::new(builder.with_ansi(false).json().flatten_event(true).finish()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(filter: &str, format: LogFormat, log: impl FnOnce()) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = subscriber(parse(filter).unwrap(), format, false, move || {
            writer.clone()
        });
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(memory.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_filter_decides_by_level_and_target() {
        let log = || {
            tracing::info!(tokens = 5, "shown");
            tracing::debug!("hidden");
            tracing::debug!(target: "tulip", "shown as well");
        };
        let lines = logged("info,tulip=debug", LogFormat::Text, log);
        assert!(
            lines.contains("shown tokens=5") && lines.contains("shown as well"),
            "{lines}"
        );
        assert!(!lines.contains("hidden"), "{lines}");
    }

    #[test]
    fn json_is_one_object_in_a_line() {
        let lines = logged("info", LogFormat::Json, || {
            tracing::info!(tokens = 5, "shown");
        });
        assert_eq!(lines.lines().count(), 1);
        for fragment in [r#""level":"INFO""#, r#""message":"shown""#, r#""tokens":5"#] {
            assert!(lines.contains(fragment), "{fragment} is not in {lines}");
        }
        assert!(lines.starts_with('{') && lines.ends_with("}\n"), "{lines}");
    }

    #[test]
    fn what_is_no_filter_is_named() {
        for filter in ["inof", "info,tulip=dbug", "", "tulip="] {
            let error = init(filter, LogFormat::Text).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains(&format!("log filter {filter:?}: ")),
                "{error}"
            );
        }
        assert!(
            "xml"
                .parse::<LogFormat>()
                .unwrap_err()
                .to_string()
                .contains("\"xml\"")
        );
    }

    #[test]
    fn a_second_set_up_changes_nothing() {
        assert_eq!(init("warn", LogFormat::Text), Ok(true));
        assert_eq!(init("debug", LogFormat::Json), Ok(false));
        assert!(init("inof", LogFormat::Text).is_err());
    }
}
