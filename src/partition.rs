//! Which partition a device belongs to, and which shard owns that partition. The partition is the one that Kafka's Java
//! client would choose for the same key, so that other producers and consumers of the topic agree with the router.
//!
//! Pure functions, no state. Cost: one multiplication chain per 4 bytes of the id and one division
//! (`benches/partition.rs`). [`self_test`] compares the hash with answers of the Java client; the router refuses
//! to start when it fails.

use crate::units::{PartitionId, ShardId};
use thiserror::Error;

/// The seed of the Java client's partitioner.
const SEED: u32 = 0x9747_b28c;

/// The multiplier of MurmurHash2.
const MULTIPLIER: u32 = 0x5bd1_e995;

/// MurmurHash2 of 32 bits, as the Java client computes it: little-endian words, its seed, a signed result.
#[inline]
#[must_use]
pub fn murmur2(bytes: &[u8]) -> i32 {
    // The length enters modulo 2^32, as Java's `int` does.
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> 24;
        mixed = mixed.wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed;
    }
    // The last 1 to 3 bytes form a little-endian number of their own.
    let rest = match *tail {
        [a] => Some(u32::from(a)),
        [a, b] => Some(u32::from(a) | u32::from(b) << 8),
        [a, b, c] => Some(u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16),
        _ => None,
    };
    if let Some(rest) = rest {
        hash = (hash ^ rest).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^= hash >> 15;
    hash as i32
}

/// The partition of a device in a topic of `partitions`.
///
/// # Panics
/// If `partitions` is 0.
#[inline]
#[must_use]
pub fn partition_of(device: &[u8], partitions: u32) -> PartitionId {
    PartitionId((murmur2(device) as u32 & 0x7fff_ffff) % partitions)
}

/// The shard that owns a partition.
///
/// # Panics
/// If `shards` is 0.
#[inline]
#[must_use]
pub fn shard_of(partition: PartitionId, shards: u16) -> ShardId {
    if shards == 1 {
        return ShardId(0); // most hosts; spares a division a trigger
    }
    // Always below `shards`, so nothing is cut off.
    ShardId((partition.0 % u32::from(shards)) as u16)
}

/// Answers of the Java client, one for each length of the tail, several words, and letters outside ASCII.
const KNOWN: [(&[u8], i32); 15] = [
    (b"", 275_646_681),
    (b"a", -1_563_381_124),
    (b"ab", 316_155_434),
    (b"abc", 479_470_107),
    (b"abcd", -1_323_649_548),
    (b"abcde", 461_995_741),
    (b"\x53\x5c\x77\xa5\x7c\xe3", -421_680_881),
    (b"\x45\xa1\xe8\x02\x9c\x3c\x22", -1_834_759_013),
    (b"device-1", 1_007_784_178),
    (b"fd7af248-ce5c-46a5-93d7-1c0c9005b99d", -147_180_742),
    ("устройство-7".as_bytes(), -443_325_229),
    ("車両-12".as_bytes(), 332_074_574),
    (b"\x00", 375_494_588),
    (b"\xff\xfe\x00\x01", 1_370_013_769),
    (b"\x80\x81\x82", -1_975_640_061),
];

/// The hash of this build differs from the Java client's: triggers would go to other partitions than those of every
/// other producer, and the order per device would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "self-test failed: murmur2({key:?}) = {got}, the Java client says {want}; this binary is miscompiled, do not use it"
)]
pub struct SelfTestFailed {
    /// The bytes that were hashed.
    pub key: &'static [u8],
    /// What this build computes.
    pub got: i32,
    /// What the Java client computes.
    pub want: i32,
}

/// Compares the hash with a table of the Java client's answers. Run at start; takes about a microsecond.
///
/// # Errors
/// [`SelfTestFailed`] with the first key that differs. The router must not start then.
pub fn self_test() -> Result<(), SelfTestFailed> {
    compare(&KNOWN, murmur2)
}

fn compare(table: &[(&'static [u8], i32)], hash: impl Fn(&[u8]) -> i32) -> Result<(), SelfTestFailed> {
    for &(key, want) in table {
        // The compiler must not know the key, or it would test itself instead of the code that runs.
        let got = hash(std::hint::black_box(key));
        if got != want {
            return Err(SelfTestFailed { key, got, want });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `org.apache.kafka.common.utils.Utils.murmur2` of the Java client 4.3.1.
    const VECTORS: &str = include_str!("../tests/data/murmur2-vectors.tsv");

    fn from_hex(hex: &str) -> Vec<u8> {
        assert!(hex.len().is_multiple_of(2));
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn every_vector_of_the_java_client() {
        let mut lines = VECTORS.lines();
        let head: Vec<&str> = lines.next().unwrap().split('\t').collect();
        assert_eq!(head[..3], ["key_hex", "murmur2_signed", "positive"]);
        let counts: Vec<u32> = head[3..].iter().map(|name| name.strip_prefix('p').unwrap().parse().unwrap()).collect();
        assert_eq!(counts, [1, 3, 10, 12, 24, 32, 100]);
        let (mut rows, mut cells) = (0, 0);
        for line in lines {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns.len(), head.len(), "{line}");
            let key = from_hex(columns[0]);
            let signed: i32 = columns[1].parse().unwrap();
            let positive: u32 = columns[2].parse().unwrap();
            assert_eq!(murmur2(&key), signed, "{line}");
            assert_eq!(signed as u32 & 0x7fff_ffff, positive, "{line}");
            for (&count, want) in counts.iter().zip(&columns[3..]) {
                assert_eq!(partition_of(&key, count), PartitionId(want.parse().unwrap()), "{count} partitions, {line}");
                cells += 1;
            }
            rows += 1;
        }
        assert_eq!((rows, cells), (502, 502 * 7));
    }

    #[test]
    fn the_self_test_table_is_of_the_java_client_and_covers_every_tail() {
        let vectors: Vec<(Vec<u8>, i32)> = VECTORS
            .lines()
            .skip(1)
            .map(|line| {
                let mut columns = line.split('\t');
                (from_hex(columns.next().unwrap()), columns.next().unwrap().parse().unwrap())
            })
            .collect();
        for (key, want) in KNOWN {
            assert!(
                vectors.iter().any(|(other, answer)| other == key && *answer == want),
                "{key:?} is not in the file"
            );
        }
        for len in 0..8 {
            assert!(KNOWN.iter().any(|(key, _)| key.len() == len), "no key of {len} bytes");
        }
        assert!(KNOWN.iter().any(|(key, _)| key.len() > 32));
        assert_eq!(self_test(), Ok(()));
    }

    #[test]
    fn the_self_test_can_fail() {
        let got = KNOWN[3].1 ^ 1;
        let broken = |key: &[u8]| if key == KNOWN[3].0 { got } else { murmur2(key) };
        let failed = compare(&KNOWN, broken).unwrap_err();
        assert_eq!(failed, SelfTestFailed { key: KNOWN[3].0, got, want: KNOWN[3].1 });
        assert!(failed.to_string().contains("479470107"), "{failed}");
        // The mistakes of a port: signed bytes in the tail, or no tail at all.
        assert!(compare(&KNOWN, |key| murmur2(&key[..key.len() / 4 * 4])).is_err());
    }

    #[test]
    fn a_partition_has_one_shard_and_shards_share_evenly() {
        for shards in [1_u16, 2, 3, 7, 64] {
            let mut owned = vec![0; usize::from(shards)];
            for partition in 0..u32::from(shards) * 5 {
                let shard = shard_of(PartitionId(partition), shards);
                assert_eq!(u32::from(shard.0), partition % u32::from(shards));
                owned[usize::from(shard.0)] += 1;
            }
            assert!(owned.iter().all(|&count| count == 5));
        }
        assert_eq!(shard_of(PartitionId(u32::MAX), u16::MAX), ShardId(0));
    }
}
