//! What has to hold before the relay writes anything, from facts that adapters have collected.
//!
//! A relay that goes on from the wrong place loses flips or numbers them anew, and nothing downstream can tell. So
//! whatever does not match the last window in the log stops it here, before it disturbs anyone.

use fencepost_model::WindowRecord;

use super::change::lsn;
use super::{Origin, RelayConfig, outbox};

/// What Postgres says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its system identifier.
    pub system: String,
    /// The timeline that it writes; `None` for a standby.
    pub timeline: Option<u32>,
    /// Its write-ahead log is on disk up to here; 0 for a standby.
    pub flushed_lsn: u64,
    /// The setting `wal_level`.
    pub wal_level: String,
    /// The connected database.
    pub database: String,
    /// The slot of the configured name.
    pub slot: Option<Slot>,
    /// The publication of the configured name.
    pub publication: Option<Publication>,
}

/// A replication slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its output plugin; `None` for a physical slot.
    pub plugin: Option<String>,
    /// Its database.
    pub database: Option<String>,
    /// Whether its WAL is gone.
    pub lost: bool,
    /// Everything before this LSN has been acknowledged, and is not sent again.
    pub confirmed_lsn: u64,
}

/// A publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Whether it publishes inserts.
    pub inserts: bool,
    /// Whether it publishes partitions as the table that they belong to.
    pub via_root: bool,
    /// Whether it publishes each row.
    pub all_rows: bool,
    /// Its tables, as `schema.name`.
    pub tables: Vec<String>,
}

/// What the log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Kafka's id of the flips topic.
    pub flips_topic: String,
    /// Its number of partitions.
    pub partitions: u32,
    /// The last window; `None` when the history holds none.
    pub last: Option<WindowRecord>,
    /// Whether the flips topic holds windows of which the history knows nothing.
    pub history_is_lost: bool,
}

/// Why the relay does not start: what happened, to what, and what to run next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

/// How to go on when the log and the source have parted for good.
const START_ANEW: &str = "run `fencepost audit` to see which counts are wrong, and start a new log (another \
                          kafka.topic_prefix, relay.slot and relay.publication, then `fencepost migrate`)";

/// Checks that a relay may go on behind the last window of the log (or start one), and returns what it writes into
/// windows about its source.
///
/// # Errors
/// See [`Refusal`].
pub fn check(config: &RelayConfig, source: &Source, log: &Log) -> Result<Origin, Refusal> {
    let refuse = |reason: String| Err(Refusal(reason));
    let Some(timeline) = source.timeline else {
        return refuse("Postgres is a standby: set postgres.url to the primary".to_owned());
    };
    if source.wal_level != "logical" {
        return refuse(format!(
            "wal_level is {}, and logical replication needs logical: run `ALTER SYSTEM SET wal_level = logical` and \
             restart Postgres",
            source.wal_level
        ));
    }
    if log.history_is_lost {
        return refuse(format!(
            "the topic windows is empty, and the flips topic holds windows: the history was lost or created anew, and with \
             it the place to go on from; restore the topic, or {START_ANEW}"
        ));
    }
    check_publication(&config.publication, source)?;
    if let Some(last) = &log.last {
        check_history(last, source, timeline, log)?;
    }
    check_slot(&config.slot, source, log.last.as_ref())?;
    Ok(Origin { flips_topic: log.flips_topic.clone(), system: source.system.clone(), timeline })
}

fn check_history(last: &WindowRecord, source: &Source, timeline: u32, log: &Log) -> Result<(), Refusal> {
    let reason = if last.system != source.system {
        format!(
            "the log was written from Postgres system {}, and this is system {}: set postgres.url to that database, or \
             kafka.topic_prefix to the log of this one",
            last.system, source.system
        )
    } else if last.timeline != timeline {
        format!(
            "the log was written from timeline {}, and Postgres is on timeline {timeline}: it was promoted or restored, \
             and may have lost what the log has; set postgres.url to the old primary if it lives, or {START_ANEW}",
            last.timeline
        )
    } else if source.flushed_lsn < last.position.lsn {
        format!(
            "the log was written up to LSN {}, and Postgres' write-ahead log ends at {}: its data was put back from an older \
             copy, and what it commits now would pass for counted; put the newer data back if it lives, or {START_ANEW}",
            lsn(last.position.lsn),
            lsn(source.flushed_lsn)
        )
    } else if last.flips_topic != log.flips_topic {
        format!(
            "the last window was written to the flips topic with id {}, and the topic of that name has id {}: it was \
             created anew, and what it held is gone; {START_ANEW}",
            last.flips_topic, log.flips_topic
        )
    } else if last.counts.len() != log.partitions as usize {
        format!(
            "the flips topic had {} partitions in the last window and has {}: identities would move between partitions \
             and be counted twice; partitions cannot be taken away again: {START_ANEW}",
            last.counts.len(),
            log.partitions
        )
    } else {
        return Ok(());
    };
    Err(Refusal(reason))
}

fn check_publication(name: &str, source: &Source) -> Result<(), Refusal> {
    let Some(publication) = &source.publication else {
        let database = &source.database;
        return Err(Refusal(format!(
            "publication {name} does not exist in database {database}: run `fencepost migrate`"
        )));
    };
    let outbox = format!("{}.{}", outbox::TABLE.0, outbox::TABLE.1);
    let (what, repair) = if !publication.inserts || !publication.via_root {
        (
            "does not publish the inserts of all partitions as those of their table".to_owned(),
            "SET (publish = 'insert', publish_via_partition_root = true)".to_owned(),
        )
    } else if publication.tables != [outbox.clone()] {
        let tables = publication.tables.join(", ");
        (format!("is of tables [{tables}], not of {outbox}"), format!("SET TABLE {outbox}"))
    } else if !publication.all_rows {
        ("filters rows".to_owned(), format!("SET TABLE {outbox}"))
    } else {
        return Ok(());
    };
    Err(Refusal(format!(
        "publication {name} {what}: run `ALTER PUBLICATION {name} {repair}`; what was written meanwhile may be missing, \
         so run `fencepost audit` then"
    )))
}

fn check_slot(name: &str, source: &Source, last: Option<&WindowRecord>) -> Result<(), Refusal> {
    let lost = |what: &str| {
        let reason = match last {
            None => format!("slot {name} {what}: run `fencepost migrate`"),
            Some(last) => format!(
                "slot {name} {what}: what was written after window {} ({}) is missing in the log for ever; {START_ANEW}",
                last.window,
                lsn(last.end_lsn)
            ),
        };
        Err(Refusal(reason))
    };
    let Some(slot) = &source.slot else {
        return lost("(relay.slot) does not exist");
    };
    if slot.plugin.as_deref() != Some("pgoutput") || slot.database.as_ref() != Some(&source.database) {
        return Err(Refusal(format!(
            "slot {name} is of plugin {} and database {}, not of pgoutput and {}: set relay.slot to another name and run \
             `fencepost migrate`",
            slot.plugin.as_deref().unwrap_or("none"),
            slot.database.as_deref().unwrap_or("none"),
            source.database
        )));
    }
    if slot.lost {
        return lost("has lost its WAL");
    }
    match last {
        Some(last) if slot.confirmed_lsn > last.end_lsn => {
            lost(&format!("stands at {}, ahead of the log", lsn(slot.confirmed_lsn)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_model::{CutKind, Position};

    fn source() -> Source {
        Source {
            system: "7".to_owned(),
            timeline: Some(1),
            flushed_lsn: 100,
            wal_level: "logical".to_owned(),
            database: "app".to_owned(),
            slot: Some(Slot {
                plugin: Some("pgoutput".to_owned()),
                database: Some("app".to_owned()),
                lost: false,
                confirmed_lsn: 100,
            }),
            publication: Some(Publication {
                inserts: true,
                via_root: true,
                all_rows: true,
                tables: vec!["fencepost.outbox".to_owned()],
            }),
        }
    }

    fn log() -> Log {
        let last = WindowRecord {
            v: 1,
            window: 9,
            before: 8,
            position: Position::after_transaction(1, 90),
            end_lsn: 100,
            as_of: 1,
            kind: CutKind::Whole,
            op: 1,
            counts: vec![0; 8],
            flips_topic: "topic".to_owned(),
            system: "7".to_owned(),
            timeline: 1,
        };
        Log { flips_topic: "topic".to_owned(), partitions: 8, last: Some(last), history_is_lost: false }
    }

    #[test]
    fn a_source_that_matches_is_accepted() {
        let origin = Origin { flips_topic: "topic".to_owned(), system: "7".to_owned(), timeline: 1 };
        let config = RelayConfig::default();
        assert_eq!(check(&config, &source(), &log()), Ok(origin.clone()));
        assert_eq!(check(&config, &source(), &Log { last: None, ..log() }), Ok(origin));
        let mut behind = source();
        behind.slot.as_mut().expect("a slot").confirmed_lsn = 50;
        assert!(check(&config, &behind, &log()).is_ok(), "a slot behind the log sends again what is skipped");
    }

    #[test]
    fn whatever_does_not_match_is_refused_with_a_way_out() {
        type Change = fn(&mut Source, &mut Log);
        let cases: [(Change, &str); 19] = [
            (|source, _| source.timeline = None, "set postgres.url to the primary"),
            (|source, _| source.wal_level = "replica".to_owned(), "ALTER SYSTEM SET wal_level = logical"),
            (|source, _| source.publication = None, "fencepost migrate"),
            (|source, _| source.publication.as_mut().expect("one").inserts = false, "SET (publish"),
            (|source, _| source.publication.as_mut().expect("one").via_root = false, "SET (publish"),
            (|source, _| source.publication.as_mut().expect("one").all_rows = false, "SET TABLE"),
            (|source, _| source.publication.as_mut().expect("one").tables.clear(), "SET TABLE"),
            (|source, _| source.slot = None, "fencepost audit"),
            (|source, _| source.slot.as_mut().expect("one").lost = true, "fencepost audit"),
            (|source, _| source.slot.as_mut().expect("one").confirmed_lsn = 101, "ahead of the log"),
            (|source, _| source.slot.as_mut().expect("one").plugin = None, "relay.slot"),
            (|source, _| source.slot.as_mut().expect("one").database = None, "relay.slot"),
            (|source, _| source.system = "8".to_owned(), "set postgres.url to that database"),
            (|source, _| source.timeline = Some(2), "timeline 2"),
            (|source, _| source.flushed_lsn = 89, "put the newer data back"),
            (|_, log| log.flips_topic = "other".to_owned(), "created anew"),
            (|_, log| log.partitions = 9, "8 partitions"),
            (|_, log| (log.last, log.history_is_lost) = (None, true), "restore the topic"),
            (|source, log| (source.slot, log.last) = (None, None), "fencepost migrate"),
        ];
        for (change, way_out) in cases {
            let (mut source, mut log) = (source(), log());
            change(&mut source, &mut log);
            let refusal = check(&RelayConfig::default(), &source, &log).expect_err(way_out).to_string();
            assert!(refusal.contains(way_out), "{refusal}");
        }
    }
}
