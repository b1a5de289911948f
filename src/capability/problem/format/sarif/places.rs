//! Locations in files: URIs, their bases, and the table of artifacts. Sections 3.4, 3.14.14, 3.28
//! and 3.30.

use serde::Deserialize;
use serde_json::{Result, value::RawValue};

use engine::raw_json::{each_entry, each_item};

/// Most artifacts of a run that are remembered.
const ARTIFACTS_MAX: usize = 100_000;
/// Most bases of URIs of a run.
const BASES_MAX: usize = 100;
/// Most bases that follow each other.
const OUTER_MAX: usize = 5;
/// Longest path of an artifact or a base, in bytes.
const PATH_BYTES_MAX: usize = 4_096;

/// A location of a result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Option<Physical>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Option<Artifact>,
    region: Option<Region>,
}

/// A file.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Artifact {
    uri: Option<String>,
    uri_base_id: Option<String>,
    index: Option<i64>,
}

#[derive(Deserialize)]
struct ArtifactObject {
    location: Option<Artifact>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: Option<u32>,
    start_column: Option<u32>,
}

/// A position in a file.
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
}

/// The artifacts of a run, and the bases of its URIs.
pub(super) struct Places {
    artifacts: Vec<Option<Artifact>>,
    bases: Vec<(String, Artifact)>,
}

impl Places {
    /// Shape: what is not in the form of an artifact or a base is skipped, and so is what is longer
    /// than [`PATH_BYTES_MAX`].
    pub(super) fn read(artifacts: Option<&RawValue>, bases: Option<&RawValue>) -> Self {
        let short = |artifact: &Artifact| {
            let text = [&artifact.uri, &artifact.uri_base_id];
            text.iter().all(|text| text.as_ref().is_none_or(|text| text.len() <= PATH_BYTES_MAX))
        };
        let mut read = Self { artifacts: Vec::new(), bases: Vec::new() };
        if let Some(artifacts) = artifacts {
            drop(each_item(artifacts, |_, artifact| {
                if read.artifacts.len() < ARTIFACTS_MAX {
                    let parsed = serde_json::from_str::<ArtifactObject>(artifact.get()).ok();
                    read.artifacts.push(parsed.and_then(|artifact| artifact.location).filter(short));
                }
                Ok(())
            }));
        }
        if let Some(bases) = bases {
            drop(each_entry(bases, |name, base| {
                if read.bases.len() < BASES_MAX
                    && let Some(base) = serde_json::from_str(base.get()).ok().filter(short)
                {
                    read.bases.push((name.to_owned(), base));
                }
                Ok(())
            }));
        }
        read
    }

    /// The first location in a file.
    ///
    /// Errors: one before it has not the form of a location.
    pub(super) fn first(&self, locations: Option<&RawValue>) -> Result<Option<Place>> {
        let mut first = None;
        if let Some(locations) = locations {
            each_item(locations, |_, location| {
                if first.is_none() {
                    let location = serde_json::from_str::<Location>(location.get())?;
                    first = location.physical_location.and_then(|physical| self.place(physical));
                }
                Ok(())
            })?;
        }
        Ok(first)
    }

    fn place(&self, physical: Physical) -> Option<Place> {
        let file = self.file(&physical.artifact_location?)?;
        let (line, column) =
            physical.region.map_or((None, None), |region| (region.start_line, region.start_column));
        Some(Place { file, line, column })
    }

    /// The path of a file, after the path of its base.
    pub(super) fn file(&self, artifact: &Artifact) -> Option<String> {
        if artifact.uri.is_none() {
            let index = usize::try_from(artifact.index?).ok()?;
            let artifact = self.artifacts.get(index)?.as_ref()?;
            return if artifact.uri.is_some() { self.file(artifact) } else { None };
        }
        let (mut file, mut base) = (path(artifact.uri.as_deref()?), artifact.uri_base_id.as_deref());
        for _ in 0..OUTER_MAX {
            let known = |name: &str| self.bases.iter().find(|(other, _)| other == name).map(|(_, base)| base);
            let Some(outer) = base.and_then(known).filter(|_| !file.starts_with('/')) else { break };
            if let Some(uri) = outer.uri.as_deref().map(path).filter(|uri| !uri.is_empty()) {
                file = format!("{}/{file}", uri.trim_end_matches('/'));
            }
            base = outer.uri_base_id.as_deref();
        }
        Some(file)
    }
}

/// The path of a URI, with percent-encoded bytes such as `%20` decoded.
fn path(uri: &str) -> String {
    let uri = uri.strip_prefix("file://localhost").or_else(|| uri.strip_prefix("file://")).unwrap_or(uri);
    let (mut bytes, mut rest) = (Vec::with_capacity(uri.len()), uri.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.split_at_checked(2).filter(|_| *first == b'%').and_then(|(hex, after)| {
            let hex = str::from_utf8(hex).ok()?;
            Some((u8::from_str_radix(hex, 16).ok()?, after))
        });
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
