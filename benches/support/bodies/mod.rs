//! The pieces of work that are timed, counted and tested, one for each question and workload.
//!
//! A body is made once, outside the measurement, and run as often as somebody likes: each run does the same number of
//! operations on new input. What came out is checked over all runs. To add one, write it in the file of its question and
//! put it into [`BODIES`].

pub mod append;
pub mod breaker;
pub mod dedup;
pub mod frame;
pub mod page;
pub mod ring;
pub mod rows;
pub mod trigger;
pub mod turn;

/// A piece of work.
pub trait Body {
    /// Makes the input of the next run. Not measured.
    fn prepare(&mut self) {}
    /// The work.
    fn run(&mut self);
    /// Looks at what all runs so far have left.
    ///
    /// # Panics
    /// If an answer is wrong.
    fn check(&mut self);
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For a test: as little as shows that the answer is right.
    Small,
    /// For a figure.
    Full,
}

impl Size {
    /// One of the two.
    pub fn pick<T>(self, small: T, full: T) -> T {
        if self == Size::Small { small } else { full }
    }
}

/// A body by its name.
pub struct Entry {
    /// `question/variant`.
    pub name: &'static str,
    /// Whether its instructions are counted too. What takes long under callgrind and is no other code is not.
    pub is_counted: bool,
    operations: fn(Size) -> u64,
    make: fn(Size) -> Box<dyn Body>,
}

impl Entry {
    /// The benchmark that it belongs to.
    pub fn question(&self) -> &'static str {
        self.name.split_once('/').expect("a name is question/variant").0
    }

    /// Which of the benchmark's it is.
    pub fn variant(&self) -> &'static str {
        self.name.split_once('/').expect("a name is question/variant").1
    }

    /// Operations of one run: triggers, records, rows.
    pub fn operations(&self, size: Size) -> u64 {
        (self.operations)(size)
    }

    /// Ready for its first run.
    pub fn make(&self, size: Size) -> Box<dyn Body> {
        (self.make)(size)
    }
}

/// Lets a table say `name => operations, make`.
macro_rules! bodies {
    ($($name:literal $(($timed_only:ident))? => $operations:expr, $make:expr;)*) => {
        /// All of them.
        pub const BODIES: &[Entry] = &[$(Entry {
            name: $name,
            is_counted: bodies!(@counted $($timed_only)?),
            operations: $operations,
            make: |size| Box::new($make(size)),
        }),*];
    };
    (@counted) => { true };
    (@counted timed) => { false };
}

bodies! {
    "ring_record/fleet" => ring::operations, |size| ring::Records::new("fleet", size);
    "ring_record/uuid" => ring::operations, |size| ring::Records::new("uuid", size);
    "ring_record/laden" => ring::operations, |size| ring::Records::new("laden", size);
    "partition/fleet" => trigger::operations, |size| trigger::Partitions::new("fleet", size);
    "partition/uuid" => trigger::operations, |size| trigger::Partitions::new("uuid", size);
    "rules/fleet" => trigger::operations, |size| trigger::Checks::new("fleet", size);
    "rules/uuid" => trigger::operations, |size| trigger::Checks::new("uuid", size);
    "rules/laden" => trigger::operations, |size| trigger::Checks::new("laden", size);
    "key_hash/fleet" => trigger::operations, |size| trigger::Hashes::new("fleet", size);
    "key_hash/uuid" => trigger::operations, |size| trigger::Hashes::new("uuid", size);
    "stamp/tick" => trigger::operations, trigger::Ticks::new;
    "dedup/4096_keys_0_hits" => dedup::operations, |size| dedup::Asks::new(4_096, 0, size);
    "dedup/4096_keys_30_hits" => dedup::operations, |size| dedup::Asks::new(4_096, 30, size);
    "dedup/4096_keys_90_hits" => dedup::operations, |size| dedup::Asks::new(4_096, 90, size);
    "dedup/100000_keys_0_hits" => dedup::operations, |size| dedup::Asks::new(100_000, 0, size);
    "dedup/100000_keys_30_hits" => dedup::operations, |size| dedup::Asks::new(100_000, 30, size);
    "dedup/100000_keys_90_hits" => dedup::operations, |size| dedup::Asks::new(100_000, 90, size);
    "dedup/1000000_keys_0_hits"(timed) => dedup::operations, |size| dedup::Asks::new(1_000_000, 0, size);
    "dedup/1000000_keys_30_hits"(timed) => dedup::operations, |size| dedup::Asks::new(1_000_000, 30, size);
    "dedup/1000000_keys_90_hits"(timed) => dedup::operations, |size| dedup::Asks::new(1_000_000, 90, size);
    "encode/fleet" => frame::operations, |size| frame::Encode::new("fleet", size);
    "encode/uuid" => frame::operations, |size| frame::Encode::new("uuid", size);
    "encode/laden" => frame::operations, |size| frame::Encode::new("laden", size);
    "encode/length_uuid" => frame::operations, |size| frame::Length::new("uuid", size);
    "decode/fleet" => frame::operations, |size| frame::Decode::new("fleet", size);
    "decode/uuid" => frame::operations, |size| frame::Decode::new("uuid", size);
    "decode/laden" => frame::operations, |size| frame::Decode::new("laden", size);
    "shard_turn/uniform" => turn::operations, |size| turn::Turns::new("uniform", size);
    "shard_turn/skewed" => turn::operations, |size| turn::Turns::new("skewed", size);
    "shard_turn/hot_key" => turn::operations, |size| turn::Turns::new("hot_key", size);
    "shard_turn/repeat_heavy" => turn::operations, |size| turn::Turns::new("repeat_heavy", size);
    "shard_turn/bursty" => turn::operations, |size| turn::Turns::new("bursty", size);
    "breaker/closed" => breaker::operations, breaker::Closed::new;
    "breaker/outage" => breaker::operations, breaker::Outage::new;
    "spill_append/append" => append::operations, |size| append::Appends::new(None, size);
    "spill_append/commit_of_250" => append::operations, |size| append::Appends::new(Some(250), size);
    "metrics/record" => page::operations, page::Records::new;
    "metrics/streak" => page::operations, page::Streaks::new;
    "metrics/counters" => page::operations, page::Counters::new;
    "metrics/read_a_page" => page::pages, page::Pages::new;
    "source/usual" => rows::operations, |size| rows::Rows::new("usual", size);
    "source/spaced" => rows::operations, |size| rows::Rows::new("spaced", size);
    "source/sorted" => rows::operations, |size| rows::Rows::new("sorted", size);
    "source/laden" => rows::operations, |size| rows::Rows::new("laden", size);
    "source/frames" => rows::operations, |size| rows::Rows::new("frames", size);
}
