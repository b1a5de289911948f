use std::time::Duration;

use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn alarm_in_the_past_fires_at_once() {
    let (past, future) = (Timestamp::from_millis(1), Timestamp::from_millis(1 << 43));
    let alarm = Alarm::new().expect("an alarm");
    for (at, goes_off) in [(past, true), (future, false), (past, true)] {
        alarm.set(at).expect("set");
        let limit = if goes_off { Duration::from_secs(10) } else { Duration::from_millis(20) };
        assert_eq!(timeout(limit, alarm.wait()).await.is_ok(), goes_off, "{at}");
    }
}
