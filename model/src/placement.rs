//! Where things go: the bucket of a user, the lane of an item, the partition of an event.
//!
//! Frozen by `vectors/placement.csv`, which every implementation (Rust, SQL, other languages) runs: an edge that
//! changes its partition would meet its duplicates no more (I12), an item that changes its lane would be counted twice.

use std::io::Write;

use crate::Id;

/// Number of buckets that the edges of an item are spread over.
pub const BUCKETS: u8 = 64;

/// Number of lanes: groups of counters that move together. Fixed for the life of a totals topic.
pub const LANES: u8 = 64;

/// Odd, below 2^31: its product with a 32-bit number fits a signed 64-bit integer, as SQL needs.
const MULTIPLIER: u64 = 1_640_531_527;

/// Seed of Kafka's murmur2.
const KAFKA_SEED: u32 = 0x9747_b28c;

/// Multiplicative hash: the top 6 of 32 bits.
fn hash6(id: impl Id) -> u8 {
    let product = (u64::from(id.fold()) * MULTIPLIER) & 0xffff_ffff;
    u8::try_from(product >> 26).expect("6 bits")
}

/// The bucket of a user (or of a correction's id), below [`BUCKETS`].
pub fn bucket(user: impl Id) -> u8 {
    hash6(user)
}

/// The lane of an item, below [`LANES`].
pub fn lane(item: impl Id) -> u8 {
    hash6(item)
}

/// The partition of the events of an item in a bucket: Kafka's default for the UTF-8 key `item:bucket`, so that
/// any client that uses Kafka's murmur2 partitioner with this key agrees.
///
/// # Panics
/// When `partitions` is 0.
pub fn partition(item: impl Id, bucket: u8, partitions: u32) -> u32 {
    let mut key = PartitionKey::new();
    partition_of_key(key.write(item, bucket), partitions)
}

/// The partition of a record with this key: murmur2 as in Kafka's Java client.
///
/// # Panics
/// When `partitions` is 0.
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    (murmur2::murmur2(key, KAFKA_SEED) & 0x7fff_ffff) % partitions
}

/// A buffer for the record key `item:bucket`, used again for each record.
#[derive(Debug, Default)]
pub struct PartitionKey(Vec<u8>);

impl PartitionKey {
    /// An empty buffer.
    pub fn new() -> Self {
        Self(Vec::with_capacity(48))
    }

    /// The key of the events of an item in a bucket.
    pub fn write(&mut self, item: impl Id, bucket: u8) -> &[u8] {
        self.0.clear();
        write!(self.0, "{item}:{bucket}").expect("writing to memory cannot fail");
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `id,hash6,partition of 8,partition of 48` where the key is `id:hash6(id)`.
    const VECTORS: &str = include_str!("../vectors/placement.csv");

    fn row(id: i64) -> String {
        let hash = hash6(id);
        format!("{id},{hash},{},{}", partition(id, hash, 8), partition(id, hash, 48))
    }

    #[test]
    fn placement_is_frozen() {
        let rows: Vec<_> = VECTORS.lines().skip(1).collect();
        assert!(rows.len() >= 20, "the vectors are gone");
        for line in rows {
            let id = line.split(',').next().expect("an id").parse().expect("a 64-bit integer");
            assert_eq!(row(id), line);
        }
    }

    /// The values that Kafka's own tests hold its Java murmur2 to.
    #[test]
    fn murmur2_is_the_one_of_kafka() {
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2::murmur2(key.as_bytes(), KAFKA_SEED).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn consecutive_ids_spread_evenly() {
        let mut lanes = [0_u32; LANES as usize];
        for item in 0..64_000_i64 {
            lanes[usize::from(lane(item))] += 1;
        }
        assert!(lanes.iter().all(|&n| (900..1_100).contains(&n)), "{lanes:?}");
    }

    proptest! {
        #[test]
        fn placement_stays_in_range(id: i64, partitions in 1_u32..10_000) {
            prop_assert!(bucket(id) < BUCKETS);
            prop_assert!(lane(id) < LANES);
            prop_assert!(partition(id, bucket(id), partitions) < partitions);
        }

        /// SQL keeps the product in a signed 64-bit integer.
        #[test]
        fn the_product_fits_a_bigint(id: i64) {
            prop_assert!(i64::try_from(u64::from(id.fold()) * MULTIPLIER).is_ok());
        }
    }
}
