//! Conservation: accepted + recovered = delivered + deduplicated + dead lettered + failed + corrupt + in the spill + in
//! flight + in the rings, after every turn; and the counters are what the world outside saw.

use super::Check;
use crate::sim::host::Host;
use crate::sim::ledger::Ledger;

pub(super) struct Conservation;

impl Check for Conservation {
    fn name(&self) -> &'static str {
        "conservation"
    }

    fn between_turns(&mut self, ledger: &Ledger, host: &Host) -> Result<(), String> {
        host.shards.iter().for_each(crate::shard::Shard::check);
        let counts = host.counts();
        if !counts.add_up() {
            return Err(format!("the sum does not add up: {counts}"));
        }
        if counts.accepted != ledger.life.0 {
            return Err(format!("{} were accepted, and it counts {counts}", ledger.life.0));
        }
        Ok(())
    }

    fn at_end(&mut self, ledger: &Ledger, host: &mut Host) -> Result<(), String> {
        let counts = host.counts();
        let (accepted, acked, given_back) = ledger.life;
        if (counts.accepted, counts.failed) != (accepted, given_back) {
            return Err(format!("{accepted} accepted, {given_back} given back, and it counts {counts}"));
        }
        if counts.delivered != acked {
            return Err(format!("{acked} were acknowledged, and it counts {counts}"));
        }
        if (counts.in_flight, counts.in_rings, counts.in_spill) != (0, 0, 0) {
            return Err(format!("everything has settled, and it counts {counts}"));
        }
        Ok(())
    }
}
