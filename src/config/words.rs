//! The keys that take one of a few words. The list of words comes from the enum, so none can be forgotten.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every word, as written in the file.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// The word in the file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            /// From the word in the file.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($word => Some($name::$variant),)+ _ => None }
            }
        }
    };
}

words! {
    /// Which time a record carries.
    RecordTime {
        /// When the router accepted the trigger.
        Accepted = "accepted",
        /// When it happened.
        Event = "event",
    }
}

words! {
    /// What a shard does when it has nothing to do.
    Idle {
        /// Burns its core and answers at once.
        Spin = "spin",
        /// Lets other threads run first.
        Yield = "yield",
        /// Sleeps until it is woken.
        Park = "park",
    }
}

words! {
    /// What happens to the triggers of a stalled partition.
    DivertPolicy {
        /// They go to the disk, in order, and to the topic when it is back.
        Spill = "spill",
        /// They go to the dead-letter topic.
        DeadLetter = "dead-letter",
        /// Submit sheds them; what was accepted waits in flight.
        Refuse = "refuse",
    }
}

words! {
    /// Where `fencepost route` takes triggers from.
    RouteSource {
        /// Standard input.
        Stdin = "stdin",
        /// A file.
        File = "file",
        /// A unix socket.
        Unix = "unix",
        /// TCP.
        Tcp = "tcp",
    }
}

words! {
    /// How triggers are written on a source.
    RouteFormat {
        /// One JSON object a line.
        Ndjson = "ndjson",
        /// Protobuf with its length before it.
        Frames = "frames",
    }
}

words! {
    /// What becomes of a source's trigger that submit sheds.
    RouteOnShed {
        /// The source waits until there is room.
        Wait = "wait",
        /// It goes to the dead-letter topic.
        DeadLetter = "dead-letter",
    }
}
