//! What an applier may do with a store at its start: a pure decision.
//!
//! What exists is said by a registry in Postgres (store name, generation), not by the store: a store that has lost
//! everything looks like a new one. Fences are written first, the registry's row after them; so
//!
//! | registry | fences | |
//! |---|---|---|
//! | none, or an older generation | none | *none*: build it. *Older*: the store lost its counters, refuse |
//! | none, or an older generation | some or all, unapplied, of one newer generation | a crash between the two: finish |
//! | a generation | all, of that generation | go |
//! | anything else | | refuse |
//!
//! A store is built from the start of the totals log only, so that has to be complete.

use fencepost_model::Fence;

/// What the registry and the store say.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// Name of the store, for messages.
    pub name: &'a str,
    /// Its generation in the registry, if it has a row.
    pub registered: Option<u64>,
    /// Its fences, by lane.
    pub fences: &'a [Option<Fence>],
    /// Whether the operator wants it built from the start of the log, whatever it holds.
    pub from_start: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Apply.
    Go {
        /// Of registry and fences.
        generation: u64,
    },
    /// Write the fences that are missing, then the registry's row, then apply. Only while the totals log is complete:
    /// see [`Build::check`].
    Build(Build),
}

/// How to build a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The generation to give it.
    pub generation: u64,
    /// What has to be done before fences are written.
    pub first: Preparation,
}

/// What has to be done before the fences of a new generation are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// See that the store is empty: a counter of unknown origin would be counted on from.
    SeeThatItIsEmpty,
    /// Remove all its keys.
    Clear,
    /// Nothing: a start before this one has done it, and has written fences.
    Done,
}

/// Why a store is not written. The message says what to run next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Situation<'_> {
    /// Decides.
    ///
    /// # Errors
    /// When the store may not be written.
    pub fn admit(&self) -> Result<Admission, Refusal> {
        let Self { name, registered, fences, from_start } = self;
        let found: Vec<Fence> = fences.iter().flatten().copied().collect();
        if *from_start {
            let highest = found.iter().map(|fence| fence.generation).chain(*registered).max();
            let generation = highest.map_or(1, |highest| highest + 1);
            return Ok(Admission::Build(Build { generation, first: Preparation::Clear }));
        }
        if let Some(generation) = self.half_built(&found) {
            return Ok(Admission::Build(Build { generation, first: Preparation::Done }));
        }
        let missing = fences.len() - found.len();
        let again =
            format!("run `fencepost apply --store {name} --from-start` while the totals log is complete");
        match registered {
            None if found.is_empty() => {
                Ok(Admission::Build(Build { generation: 1, first: Preparation::SeeThatItIsEmpty }))
            }
            None => Err(Refusal(format!(
                "store {name} has fences ({}), but no row in fencepost.stores: it belongs to another deployment, or the \
                 database was restored; give the store a key_prefix, or a schema, of its own, or, to discard what it holds, \
                 {again}",
                found[0]
            ))),
            Some(_) if missing > 0 => Err(Refusal(format!(
                "store {name} has lost its counters: {missing} of {} lanes have no fence, but it is registered in \
                 fencepost.stores; it is not written, readers get the durable counts; to rebuild it, {again}",
                fences.len()
            ))),
            Some(generation) => match found.iter().find(|fence| fence.generation != *generation) {
                None => Ok(Admission::Go { generation: *generation }),
                Some(other) => Err(Refusal(format!(
                    "store {name} has a lane at {other}, but fencepost.stores says generation {generation}: an old \
                     snapshot was restored, or the prefix is another's; to rebuild it, {again}"
                ))),
            },
        }
    }

    /// The generation of a store whose fences, or some of them, were written, but not yet its row.
    fn half_built(&self, found: &[Fence]) -> Option<u64> {
        let generation = found.first()?.generation;
        let all_new = found.iter().all(|fence| *fence == Fence::unapplied(generation));
        (all_new && generation > self.registered.unwrap_or(0)).then_some(generation)
    }
}

/// What the totals log holds of the lanes, as far as a build asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// Lanes whose first record follows another window than 0, or whose records were removed: what they miss is gone.
    pub incomplete_lanes: usize,
}

impl Build {
    /// Checks that the store can be built from the totals log alone.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self, name: &str, log: LogStart) -> Result<(), Refusal> {
        if log.incomplete_lanes == 0 {
            return Ok(());
        }
        Err(Refusal(format!(
            "store {name} cannot be built from the totals log: {} lanes no longer reach back to the first window, since \
             retention has removed records; the store is left as it is. Have the pipeline write the totals anew \
             (`fencepost pipeline --replay`, while the flips topic is complete), then try again",
            log.incomplete_lanes
        )))
    }

    /// Checks what a store without fences holds.
    ///
    /// # Errors
    /// When it has counters that nobody vouches for.
    pub fn check_empty(&self, name: &str, empty: bool) -> Result<(), Refusal> {
        if empty || self.first != Preparation::SeeThatItIsEmpty {
            return Ok(());
        }
        Err(Refusal(format!(
            "store {name} has keys under its prefix but no fence, and no row in fencepost.stores: they are another's; give \
             the store a key_prefix of its own, or, to remove them, run `fencepost apply --store {name} --from-start`"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Preparation::{Clear, Done, SeeThatItIsEmpty};

    fn admit(
        registered: Option<u64>,
        fences: &[Option<Fence>],
        from_start: bool,
    ) -> Result<Admission, Refusal> {
        Situation { name: "redis", registered, fences, from_start }.admit()
    }

    fn build(generation: u64, first: Preparation) -> Result<Admission, Refusal> {
        Ok(Admission::Build(Build { generation, first }))
    }

    fn new(generation: u64) -> Option<Fence> {
        Some(Fence::unapplied(generation))
    }

    fn at(generation: u64, window: u64) -> Option<Fence> {
        Some(Fence { window, ..Fence::unapplied(generation) })
    }

    #[test]
    fn a_new_store_is_built_and_a_known_one_goes_on() {
        assert_eq!(admit(None, &[None, None], false), build(1, SeeThatItIsEmpty));
        assert_eq!(admit(Some(3), &[at(3, 9), at(3, 8)], false), Ok(Admission::Go { generation: 3 }));
        assert_eq!(admit(Some(3), &[new(3), new(3)], false), Ok(Admission::Go { generation: 3 }));
    }

    #[test]
    fn a_build_that_crashed_is_finished() {
        for fences in [[new(1), None], [None, new(1)], [new(1), new(1)]] {
            assert_eq!(admit(None, &fences, false), build(1, Done));
        }
        for fences in [[new(4), None], [new(4), new(4)]] {
            assert_eq!(admit(Some(3), &fences, false), build(4, Done));
        }
    }

    #[test]
    fn a_store_that_lost_counters_or_is_anothers_is_refused_with_the_command() {
        for (registered, fences) in [
            (Some(3), [None, None]),
            (Some(3), [at(3, 9), None]),
            (Some(3), [new(3), None]),
            (Some(3), [at(2, 9), at(2, 9)]),
            (Some(3), [at(3, 9), at(4, 9)]),
            (Some(3), [new(4), at(3, 9)]),
            (None, [at(1, 9), at(1, 9)]),
            (None, [at(1, 9), None]),
            (None, [new(1), new(2)]),
        ] {
            let refusal = admit(registered, &fences, false).expect_err("not to be written");
            assert!(refusal.to_string().contains("apply --store redis --from-start"), "{refusal}");
        }
    }

    #[test]
    fn from_the_start_takes_a_new_generation_whatever_is_there() {
        assert_eq!(admit(None, &[None, None], true), build(1, Clear));
        assert_eq!(admit(Some(3), &[None, None], true), build(4, Clear));
        assert_eq!(admit(Some(3), &[at(7, 9), None], true), build(8, Clear));
        assert_eq!(admit(Some(3), &[new(4), new(4)], true), build(5, Clear));
    }

    #[test]
    fn a_build_needs_a_complete_log_and_an_empty_store() {
        let build = |first| Build { generation: 1, first };
        assert_eq!(build(Clear).check("redis", LogStart { incomplete_lanes: 0 }), Ok(()));
        for first in [SeeThatItIsEmpty, Clear, Done] {
            assert!(build(first).check("redis", LogStart { incomplete_lanes: 1 }).is_err());
        }
        assert!(build(SeeThatItIsEmpty).check_empty("redis", false).is_err());
        for (first, empty) in [(SeeThatItIsEmpty, true), (Clear, false), (Done, false)] {
            assert_eq!(build(first).check_empty("redis", empty), Ok(()));
        }
    }
}
