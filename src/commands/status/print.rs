use std::fmt;

use fencepost_model::Micros;
use jiff::Timestamp;

use super::look::{Part, Slot, Stage, Status};

/// A status for people: a line a stage, and the slot and the dead letters below.
pub(super) struct Table<'a>(pub(super) &'a Status);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { at, slot, log, totals, stores, dead_letters } = self.0;
        writeln!(f, "{}\n", time(*at))?;
        writeln!(
            f,
            "{:<20} {:<14} {:<28} {:>10} {:>8}  kind",
            "stage", "window", "as of", "stale", "behind"
        )?;
        line(f, "log", log)?;
        line(f, "totals", totals)?;
        for (name, store) in stores {
            line(f, &format!("store {name}"), store)?;
        }
        writeln!(f)?;
        match slot {
            Part::Known(Slot { name, active, lag_bytes, kept_bytes }) => {
                let reader = if *active { "read by a relay" } else { "read by NO relay" };
                writeln!(f, "slot {name}: {reader}, lag {lag_bytes} bytes, keeps {kept_bytes} bytes of WAL")?;
            }
            Part::Unknown { error } => writeln!(f, "slot: {error}")?,
        }
        match dead_letters {
            Part::Known(0) => writeln!(f, "dead letters: 0"),
            Part::Known(n) => writeln!(f, "dead letters: {n}; see `fencepost dump dead-letters`"),
            Part::Unknown { error } => writeln!(f, "dead letters: {error}"),
        }
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, stage: &Part<Stage>) -> fmt::Result {
    let Stage { window, as_of, kind, staleness_ms, lag_windows, lanes_missing } = match stage {
        Part::Known(stage) => stage,
        Part::Unknown { error } => return writeln!(f, "{name:<20} {error}"),
    };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    write!(
        f,
        "{name:<20} {window:<14} {:<28} {:>10} {:>8}  {}",
        or_none(as_of.map(time)),
        or_none(staleness_ms.map(|ms| format!("{}.{} s", ms / 1_000, ms % 1_000 / 100))),
        or_none(lag_windows.map(|n| n.to_string())),
        or_none(kind.map(|kind| kind.to_string())),
    )?;
    match lanes_missing {
        Some(missing @ 1..) => writeln!(f, "  {missing} lanes without a fence"),
        _ => writeln!(f),
    }
}

fn time(at: Micros) -> String {
    Timestamp::from_microsecond(at).map_or_else(|_| at.to_string(), |time| format!("{time:.3}"))
}
