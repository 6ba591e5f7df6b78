//! The resolved parameters of a load on Cassandra.

/// What the JSON of a load on Cassandra has in `scenario` beside what every load has.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct CassandraParameters {
    /// The share of reads.
    pub read_share: f64,
    /// Records of the table.
    pub records: u64,
    /// `zipfian`, `uniform` or `latest`.
    pub popularity: &'static str,
    /// Bytes of a record; of skewed sizes the most.
    pub record_bytes: usize,
    /// Whether the sizes of fields are skewed.
    pub has_skewed_sizes: bool,
    /// How many replicas each request waits for.
    pub consistency: &'static str,
    /// The version of the native protocol.
    pub protocol: u8,
    /// Whether updates carry a timestamp.
    pub has_timestamps: bool,
}
