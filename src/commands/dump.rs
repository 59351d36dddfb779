//! `fencepost dump`.

use crate::cli::DumpArgs;
use crate::config::Config;

pub(super) fn run(config: &Config, args: &DumpArgs) -> anyhow::Result<()> {
    let topic = match args.topic {
        _ => config.kafka.flips_topic(),
    };
    anyhow::bail!("{topic}")
}
