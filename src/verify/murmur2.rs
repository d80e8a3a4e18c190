//! murmur2 as Kafka's Java client computes it, written a second time, byte by byte, for the checkers alone: a mistake
//! in the router's own `partition` room must not hide itself here.

/// The partition that a keyed record belongs to.
///
/// # Panics
/// If there are no partitions.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (hash(key) & 0x7fff_ffff) % partitions
}

/// The 32-bit hash, as the bits of Java's `int`.
#[must_use]
pub fn hash(key: &[u8]) -> u32 {
    const MIX: u32 = 0x5bd1_e995;
    let mut hash: u32 = 0x9747_b28c ^ (key.len() as u32);
    let mut position = 0;
    while key.len() - position >= 4 {
        let mut word: u32 = 0;
        for ahead in 0..4 {
            word |= u32::from(key[position + ahead]) << (8 * ahead);
        }
        word = word.wrapping_mul(MIX);
        word ^= word >> 24;
        word = word.wrapping_mul(MIX);
        hash = hash.wrapping_mul(MIX);
        hash ^= word;
        position += 4;
    }
    let left = key.len() - position;
    if left > 0 {
        for ahead in 0..left {
            hash ^= u32::from(key[position + ahead]) << (8 * ahead);
        }
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^= hash >> 15;
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_java_client_computes_the_same() {
        // Printed by org.apache.kafka.common.utils.Utils.murmur2 of the Java client 4.3.1.
        let vectors: [(&[u8], i32, u32, u32); 11] = [
            (b"", 275_646_681, 9, 81),
            (b"a", -1_563_381_124, 4, 24),
            (b"ab", 316_155_434, 2, 34),
            (b"abc", 479_470_107, 3, 7),
            (b"abcd", -1_323_649_548, 20, 0),
            (b"abcde", 461_995_741, 13, 41),
            (b"device-1", 1_007_784_178, 10, 78),
            (b"veh-0042", 6_403_122, 18, 22),
            (b"a:b:c", -177_260_867, 21, 81),
            (b"\0", 375_494_588, 20, 88),
            (&[0xff, 0xfe, 0x00, 0x01], 1_370_013_769, 1, 69),
        ];
        for (key, signed, of_24, of_100) in vectors {
            assert_eq!(hash(key) as i32, signed, "{key:?}");
            assert_eq!(partition_of(key, 24), of_24, "{key:?}");
            assert_eq!(partition_of(key, 100), of_100, "{key:?}");
            assert_eq!(partition_of(key, 1), 0);
        }
        // Another script, and bytes that are no text.
        assert_eq!(hash("устройство-7".as_bytes()) as i32, -443_325_229);
        assert_eq!(hash(&[0x80, 0x81, 0x82]) as i32, -1_975_640_061);
    }
}
