//! What the linked librdkafka was built with, and what a configuration asks of it.

use rdkafka::ClientConfig;

/// A feature that the build lacks, and the property that asks for it. Values may be secrets; those named here are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// librdkafka's word for it.
    pub feature: String,
    /// What asks for it, such as `compression.type = zstd`.
    pub asked_by: String,
}

/// The version of librdkafka that is linked, as people write it.
#[must_use]
pub fn version() -> String {
    let number = super::handle::version();
    format!("{}.{}.{}", number >> 24, number >> 16 & 0xff, number >> 8 & 0xff)
}

/// The features it was built with, in its own words.
///
/// # Errors
/// What librdkafka says when it does not tell.
pub fn built_in() -> Result<Vec<String>, String> {
    let config = ClientConfig::new().create_native_config().map_err(|error| error.to_string())?;
    let list = config.get("builtin.features").map_err(|error| error.to_string())?;
    Ok(list.trim_end_matches('\0').split(',').map(|word| word.trim().to_string()).collect())
}

/// What `properties` ask for and `built_in` does not have.
#[must_use]
pub fn lacking(properties: &[(String, String)], built_in: &[String]) -> Vec<Lacking> {
    let value = |names: &[&str]| {
        properties
            .iter()
            .find(|(name, _)| names.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
    };
    let mut needed: Vec<(&str, String)> = Vec::new();
    if let Some((name, codec @ ("gzip" | "snappy" | "lz4" | "zstd"))) =
        value(&["compression.type", "compression.codec"])
    {
        needed.push((codec, format!("{name} = {codec}")));
    }
    if let Some((name, protocol)) = value(&["security.protocol"]) {
        let asked_by = format!("{name} = {protocol}");
        let protocol = protocol.to_ascii_lowercase();
        if protocol.ends_with("ssl") {
            needed.push(("ssl", asked_by.clone()));
        }
        if protocol.starts_with("sasl") {
            needed.push(("sasl", asked_by));
            let (name, mechanism) =
                value(&["sasl.mechanism", "sasl.mechanisms"]).unwrap_or(("sasl.mechanism", "GSSAPI"));
            let feature = match mechanism.to_ascii_uppercase().as_str() {
                "PLAIN" => "sasl_plain",
                "OAUTHBEARER" => "sasl_oauthbearer",
                mechanism if mechanism.starts_with("SCRAM") => "sasl_scram",
                _ => "sasl_gssapi",
            };
            needed.push((feature, format!("{name} = {mechanism}")));
        }
    }
    needed
        .into_iter()
        .filter(|(feature, _)| !built_in.iter().any(|known| known == feature))
        .map(|(feature, asked_by)| Lacking { feature: feature.to_string(), asked_by })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn m4_what_is_asked_for_and_not_there_is_named() {
        let built_in: Vec<String> = ["gzip", "snappy", "lz4", "sasl", "sasl_plain"].map(String::from).to_vec();
        let names = |pairs: &[(&str, &str)]| -> Vec<String> {
            lacking(&list(pairs), &built_in).into_iter().map(|lacking| lacking.feature).collect()
        };
        assert_eq!(names(&[("compression.type", "lz4"), ("linger.ms", "5")]), [""; 0]);
        assert_eq!(names(&[("compression.codec", "zstd")]), ["zstd"]);
        assert_eq!(names(&[("security.protocol", "ssl")]), ["ssl"]);
        assert_eq!(names(&[("security.protocol", "SASL_SSL"), ("sasl.mechanism", "PLAIN")]), ["ssl"]);
        let scram = [("security.protocol", "sasl_plaintext"), ("sasl.mechanisms", "SCRAM-SHA-512")];
        assert_eq!(names(&scram), ["sasl_scram"]);
        assert_eq!(names(&[("security.protocol", "sasl_plaintext")]), ["sasl_gssapi"]);
    }

    #[test]
    fn the_linked_library_tells_what_it_has() {
        let built_in = built_in().unwrap();
        assert!(built_in.iter().any(|feature| feature == "lz4"), "{built_in:?}");
        assert!(version().split('.').count() == 3, "{}", version());
    }
}
