//! The paths of webhooks, whose access control differs from that of other paths.

/// Path of the webhooks; the sender's name follows.
pub(crate) const PATH: &str = "/v1/webhooks/";
/// Path to which Prometheus posts alerts for an Alertmanager.
pub(crate) const ALERTS_PATH: &str = "/api/v2/alerts";
