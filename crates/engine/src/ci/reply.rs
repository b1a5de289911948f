//! The query to the GraphQL API of GitHub, and the types of its answer.

use serde::{Deserialize, Deserializer};

/// One query: check runs and commit statuses, running workflows, the branch's position, the pull
/// request with its last reviews and comments.
///
/// Source: GitHub's public schema. It costs one point of the 5,000 an hour.
pub(super) const QUERY: &str = "query($owner:String!,$name:String!,$oid:GitObjectID!,$ref:String!){\
rateLimit{remaining resetAt}\
repository(owner:$owner,name:$name){nameWithOwner ref(qualifiedName:$ref){target{oid}}\
object(oid:$oid){...on Commit{url \
statusCheckRollup{state contexts(first:100){nodes{\
...on CheckRun{name status conclusion title detailsUrl completedAt}\
...on StatusContext{context state description targetUrl createdAt}}}}\
checkSuites(first:50){nodes{status workflowRun{databaseId}}}\
associatedPullRequests(first:5){nodes{number url state headRefName headRefOid \
reviews(last:5){nodes{id state author{login}bodyText submittedAt url viewerDidAuthor comments{totalCount}}}\
comments(last:5){nodes{id author{login}bodyText createdAt url viewerDidAuthor}}}}}}}}";

/// A field that may be `null` in place of a list or an object.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

#[derive(Debug, Deserialize)]
pub(super) struct Reply {
    pub(super) data: Option<Data>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) errors: Vec<Error>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Error {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Data {
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) repository: Option<Repository>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RateLimit {
    pub(super) remaining: Option<u64>,
    pub(super) reset_at: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Repository {
    pub(super) name_with_owner: Option<String>,
    #[serde(rename = "ref")]
    pub(super) branch: Option<Branch>,
    pub(super) object: Option<Object>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Branch {
    pub(super) target: Option<Target>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Target {
    pub(super) oid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    pub(super) url: Option<String>,
    pub(super) status_check_rollup: Option<Rollup>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) check_suites: Nodes<Suite>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) associated_pull_requests: Nodes<Pull>,
}

/// A list; inaccessible entries are `null`.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    pub(super) nodes: Vec<T>,
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nodes<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Listed<T> {
            nodes: Option<Vec<Option<T>>>,
        }
        let Listed { nodes } = Listed::deserialize(from)?;
        Ok(Self { nodes: nodes.into_iter().flatten().flatten().collect() })
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Rollup {
    pub(super) state: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) contexts: Nodes<Context>,
}

/// A check run, or a commit status; only the latter has a `state`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Context {
    pub(super) name: Option<String>,
    pub(super) status: Option<String>,
    pub(super) conclusion: Option<String>,
    pub(super) title: Option<String>,
    pub(super) details_url: Option<String>,
    pub(super) context: Option<String>,
    pub(super) state: Option<String>,
    pub(super) description: Option<String>,
    pub(super) target_url: Option<String>,
    pub(super) completed_at: Option<String>,
    pub(super) created_at: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Suite {
    pub(super) status: Option<String>,
    pub(super) workflow_run: Option<Run>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Run {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pull {
    pub(super) number: u64,
    pub(super) url: Option<String>,
    pub(super) state: Option<String>,
    pub(super) head_ref_name: Option<String>,
    pub(super) head_ref_oid: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) reviews: Nodes<Written>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) comments: Nodes<Written>,
}

/// A review, or a comment; only the former has a `state`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) state: Option<String>,
    pub(super) author: Option<Author>,
    pub(super) body_text: Option<String>,
    pub(super) submitted_at: Option<String>,
    pub(super) created_at: Option<String>,
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) viewer_did_author: bool,
    pub(super) comments: Option<Counted>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Author {
    pub(super) login: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counted {
    pub(super) total_count: u64,
}
