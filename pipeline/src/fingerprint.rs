//! What shapes the totals besides the log: the same in every life of a checkpoint, or refused (I23).

use fencepost_model::placement::{BUCKETS, LANES, bucket, lane, partition};
use serde::{Deserialize, Serialize};

use crate::checkpoint::FRAME_VERSION;

/// Ids whose placement stands for the placement rules.
const PLACEMENT_SAMPLES: i64 = 1_000;

/// The topic that events are read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlipsTopic {
    /// The log's own id of it: another id is another topic under the same name.
    pub id: String,
    /// Its number of partitions.
    pub partitions: u32,
}

/// The code and configuration that shape totals and frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    lanes: u8,
    placement: u32,
    id_bytes: u32,
    frame_version: u8,
    totals_version: u8,
    horizon_windows: u32,
    flips_topic: FlipsTopic,
}

/// A checkpoint made under another fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the checkpoint was made with {what} {stored}, this pipeline has {current}: set it back, or, if the change is meant, \
     move the checkpoint directory away; the pipeline then makes it again from the log"
)]
pub struct FingerprintError {
    what: &'static str,
    stored: String,
    current: String,
}

impl Fingerprint {
    /// That of this build over ids of type `I`, with this horizon and topic.
    pub fn new<I: fencepost_model::Id>(horizon_windows: u32, flips_topic: FlipsTopic) -> Self {
        Self {
            lanes: LANES,
            placement: placement_checksum(),
            id_bytes: u32::try_from(size_of::<I>()).expect("an id is small"),
            frame_version: FRAME_VERSION,
            totals_version: fencepost_model::totals::VERSION,
            horizon_windows,
            flips_topic,
        }
    }

    /// Partitions of the flips topic.
    pub(crate) fn partitions(&self) -> u32 {
        self.flips_topic.partitions
    }

    /// Checks that a checkpoint with the fingerprint `stored` may be gone on from.
    ///
    /// # Errors
    /// Names the first thing that differs.
    pub fn check(&self, stored: &Self) -> Result<(), FingerprintError> {
        let differs = |what, stored: &dyn ToString, current: &dyn ToString| {
            let (stored, current) = (stored.to_string(), current.to_string());
            if stored == current { Ok(()) } else { Err(FingerprintError { what, stored, current }) }
        };
        differs("lanes", &stored.lanes, &self.lanes)?;
        differs("placement rules", &stored.placement, &self.placement)?;
        differs("ids of bytes", &stored.id_bytes, &self.id_bytes)?;
        differs("frame version", &stored.frame_version, &self.frame_version)?;
        differs("totals version", &stored.totals_version, &self.totals_version)?;
        differs("pipeline.horizon_windows", &stored.horizon_windows, &self.horizon_windows)?;
        differs("flips partitions", &stored.flips_topic.partitions, &self.flips_topic.partitions)?;
        differs("flips topic", &stored.flips_topic.id, &self.flips_topic.id)
    }
}

/// A checksum over what the placement rules say of some ids.
fn placement_checksum() -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&[LANES, BUCKETS]);
    for id in (0..PLACEMENT_SAMPLES).map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d)) {
        checksum.update(&[lane(id), bucket(id)]);
        checksum.update(&partition(id, bucket(id), 48).to_le_bytes());
    }
    checksum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(horizon: u32, id: &str, partitions: u32) -> Fingerprint {
        Fingerprint::new::<i64>(horizon, FlipsTopic { id: id.to_owned(), partitions })
    }

    #[test]
    fn whatever_shapes_totals_must_be_the_same() {
        let ours = fingerprint(300, "a", 8);
        assert_eq!(ours.check(&ours.clone()), Ok(()));
        for (stored, what) in [
            (fingerprint(299, "a", 8), "horizon_windows 299, this pipeline has 300"),
            (fingerprint(300, "b", 8), "flips topic b, this pipeline has a"),
            (fingerprint(300, "a", 9), "flips partitions 9, this pipeline has 8"),
            (Fingerprint { placement: 1, ..ours.clone() }, "placement rules 1"),
        ] {
            let message = ours.check(&stored).expect_err("they differ").to_string();
            assert!(message.contains(what), "{message}");
        }
    }
}
