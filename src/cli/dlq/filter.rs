//! Which letters a command is about.

use super::letter::{Letter, Read};
use super::when;
use crate::cli::CliError;
use clap::Args;

/// What a person asks for; without any, every letter.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct FilterArgs {
    /// Letters of this reason only, such as `refused` or `too_large`. May be given more than once.
    #[arg(long, value_name = "REASON")]
    reason: Vec<String>,
    /// Letters of this device only. May be given more than once.
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Letters of this fence only. May be given more than once.
    #[arg(long, value_name = "FENCE")]
    fence: Vec<String>,
    /// Letters that failed at or after this time: 2026-11-30T23:10:00Z, Unix milliseconds, or 15m for 15 minutes ago.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Letters that failed before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// The same, understood.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    reasons: Vec<String>,
    devices: Vec<Vec<u8>>,
    fences: Vec<Vec<u8>>,
    since_ms: Option<i64>,
    until_ms: Option<i64>,
    /// As it was given: a span such as `15m` means another time at each run, and is one filter all the same.
    text: String,
}

impl FilterArgs {
    /// # Errors
    /// A time that is none, or an empty range.
    pub(super) fn understood(self, now_ms: i64) -> Result<Filter, CliError> {
        let time = |key: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| when::parse(text, now_ms)).transpose();
            parsed.map_err(|why| CliError::Usage(format!("{key}: {why}")))
        };
        let (since_ms, until_ms) = (time("--since", &self.since)?, time("--until", &self.until)?);
        if let (Some(since), Some(until)) = (since_ms, until_ms)
            && since >= until
        {
            let (since, until) = (when::date(since), when::date(until));
            return Err(CliError::Usage(format!(
                "--since {since} is not before --until {until}: no letter is between"
            )));
        }
        let text = self.text();
        let bytes = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
        let (reasons, devices, fences) = (self.reason, bytes(self.device), bytes(self.fence));
        Ok(Filter { reasons, devices, fences, since_ms, until_ms, text })
    }

    /// One line that tells this filter from any other.
    fn text(&self) -> String {
        let mut parts = Vec::new();
        for (name, values) in [("reason", &self.reason), ("device", &self.device), ("fence", &self.fence)] {
            let mut values = values.clone();
            values.sort();
            values.dedup();
            parts.extend(values.iter().map(|value| format!("{name}={value:?}")));
        }
        for (name, value) in [("since", &self.since), ("until", &self.until)] {
            parts.extend(value.iter().map(|value| format!("{name}={value:?}")));
        }
        parts.join(" ")
    }
}

impl Filter {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn takes(&self, letter: &Letter, read: &Read<'_>) -> bool {
        let of = |wanted: &[Vec<u8>], got: Option<&[u8]>| {
            wanted.is_empty() || got.is_some_and(|got| wanted.iter().any(|wanted| wanted == got))
        };
        let failed_ms = letter.failed_ms(&read.notes);
        let in_time = self.since_ms.is_none_or(|since| failed_ms.is_some_and(|failed| failed >= since))
            && self.until_ms.is_none_or(|until| failed_ms.is_some_and(|failed| failed < until));
        let reason = read.notes.reason.text();
        if !in_time || !(self.reasons.is_empty() || self.reasons.iter().any(|wanted| wanted == reason)) {
            return false;
        }
        if self.devices.is_empty() && self.fences.is_empty() {
            return true;
        }
        // What is no frame may still say its device in the record's key.
        match letter.frame() {
            Ok(decoded) => {
                of(&self.devices, Some(decoded.frame.device_id)) && of(&self.fences, Some(decoded.frame.fence_id))
            }
            Err(_) => of(&self.devices, letter.key.as_deref()) && of(&self.fences, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::letter;
    use super::*;

    fn takes(args: FilterArgs, letter: &Letter) -> bool {
        args.understood(1_000_000).expect("it is a filter").takes(letter, &letter.read())
    }

    #[test]
    fn each_part_filters_and_all_must_agree() {
        let mut shed = letter(&[("fencepost.reason", "shed"), ("fencepost.last_failure_ms", "5000")]);
        shed.key = Some(b"bus-7".to_vec());
        let args = FilterArgs::default;
        let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        assert!(takes(args(), &shed));
        assert!(takes(FilterArgs { reason: texts(&["refused", "shed"]), ..args() }, &shed));
        assert!(!takes(FilterArgs { reason: texts(&["refused"]), ..args() }, &shed));
        assert!(takes(FilterArgs { device: texts(&["bus-7"]), ..args() }, &shed));
        assert!(!takes(FilterArgs { device: texts(&["bus-"]), ..args() }, &shed));
        assert!(!takes(FilterArgs { fence: texts(&["zone"]), ..args() }, &shed), "what is no frame has no fence");
        // 1,000 s, of which 995 have passed since.
        assert!(takes(FilterArgs { since: Some("995s".into()), ..args() }, &shed));
        assert!(!takes(FilterArgs { since: Some("994999ms".into()), ..args() }, &shed));
        assert!(takes(FilterArgs { until: Some("994999ms".into()), ..args() }, &shed));
        assert!(!takes(FilterArgs { until: Some("995s".into()), ..args() }, &shed));
    }

    #[test]
    fn the_text_tells_filters_apart_and_not_their_order() {
        let text = |reason: &[&str], device: &[&str]| {
            let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
            FilterArgs { reason: owned(reason), device: owned(device), ..FilterArgs::default() }.text()
        };
        assert_eq!(text(&["b", "a"], &[]), text(&["a", "b", "b"], &[]));
        assert_ne!(text(&["a"], &[]), text(&[], &["a"]));
        assert_ne!(text(&["a", "b"], &[]), text(&["a\" reason=\"b"], &[]));
        assert_eq!(text(&[], &[]), "");
        let empty = FilterArgs { since: Some("5m".into()), until: Some("5m".into()), ..FilterArgs::default() };
        assert!(empty.understood(1_000_000).is_err());
    }
}
