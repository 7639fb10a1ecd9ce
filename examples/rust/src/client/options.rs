use std::{collections::HashMap, env, process};

use tokio::signal::unix::{SignalKind, signal};

/// `--name value` and arguments of a command line.
pub struct Options {
    values: HashMap<String, String>,
    arguments: Vec<String>,
}

impl Options {
    /// With the defaults of the options there are. Ends the program with its usage where they, or the number of arguments, are wrong.
    pub fn parse(usage: &str, defaults: &[(&str, &str)], arguments: usize) -> Self {
        let mut values: HashMap<String, String> =
            defaults.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mut given = env::args().skip(1);
        let mut rest = Vec::new();
        while let Some(word) = given.next() {
            match word.strip_prefix("--") {
                None => rest.push(word),
                Some(name) => match (values.get_mut(name), given.next()) {
                    (Some(value), Some(new)) => *value = new,
                    _ => stop(usage),
                },
            }
        }
        if rest.len() != arguments {
            stop(usage);
        }
        Self { values, arguments: rest }
    }

    pub fn value(&self, name: &str) -> &str {
        &self.values[name]
    }

    /// Of `--count`; 0: without end.
    pub fn count(&self) -> usize {
        self.value("count").parse().unwrap_or_else(|_| stop("--count is a number"))
    }

    pub fn argument(&self, index: usize) -> &str {
        &self.arguments[index]
    }
}

fn stop(message: &str) -> ! {
    eprintln!("{message}");
    process::exit(2)
}

/// At Ctrl-C, or when the program is asked to end.
pub async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        stop("signals cannot be received")
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
