//! `fencepost man`.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Cli;

pub(super) fn run(dir: Option<&Path>) -> anyhow::Result<()> {
    if let Some(dir) = dir {
        return clap_mangen::generate_to(Cli::command(), dir)
            .with_context(|| format!("writing manual pages to {}", dir.display()));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    std::io::stdout().write_all(&page).context("writing the manual page")
}
