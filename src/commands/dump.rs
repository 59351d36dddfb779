//! `fencepost dump`.

use std::io::{self, BufWriter, ErrorKind, Write};

use fencepost_sources::log::dump::{self, Topic};

use crate::cli::{DumpArgs, DumpTopic};
use crate::config::Config;

pub(super) fn run(config: &Config, args: &DumpArgs) -> anyhow::Result<()> {
    let topic = match args.topic {
        DumpTopic::Flips => Topic::Flips,
        DumpTopic::Windows => Topic::Windows,
        DumpTopic::Totals => Topic::Totals,
        DumpTopic::DeadLetters => Topic::DeadLetters,
    };
    let (from, limit) = (args.from.unwrap_or(0), args.limit.unwrap_or(u64::MAX));
    let mut out = BufWriter::new(io::stdout().lock());
    let dumped = dump::dump::<i64>(&config.kafka, topic, from, limit, &mut out)
        .and_then(|()| out.flush().map_err(Into::into));
    // Whoever reads has seen enough, as `head` does.
    let is_closed = |error: &anyhow::Error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    };
    dumped.or_else(|error| if is_closed(&error) { Ok(()) } else { Err(error) })
}
