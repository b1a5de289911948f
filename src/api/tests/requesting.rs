//! The process of a request, found before and after a process above it is a client.

use super::*;
use crate::{
    api::requester::{Client, Membership, Requester},
    capability::source::process::{running, stat},
};

#[tokio::test]
async fn a_process_is_found_below_a_later_client() {
    let Daemon { app, .. } = daemon();
    let own = std::process::id();
    let above = stat(own).and_then(|stat| running(stat.parent)).expect("a process started this one");
    let (requester, session) = (Requester::local(Some(own)), SessionId::new("s1"));
    let find = async || requester.find(&app).await.expect("it is not stopping");
    let processes = app.registry.processes();
    for _ in 0..2 {
        assert_eq!((find().await.sessions(), requester.nearest_client(&app)), (&[][..], None));
        processes.know(&session, above);
        let client = Client { process: above, sessions: vec![session.clone()] };
        assert_eq!(
            (requester.nearest_client(&app), find().await),
            (Some(client.clone()), Membership::Below(client))
        );
        processes.forget(&session);
    }
}
