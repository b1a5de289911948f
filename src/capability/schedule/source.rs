//! Waits for the times of `[[sources.schedule]]`, and publishes each due time.
//!
//! The alarm uses the wall clock, counts while the machine sleeps, and reports when the clock was
//! set. Without schedules nothing is open and nothing wakes. [`Planner`] decides which time is due.

use std::{convert::Infallible, future::pending, io, os::fd::OwnedFd, sync::Arc};

use jiff::tz::TimeZone;
use rustix::{
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use tokio::{io::unix::AsyncFd, sync::watch};
use tokio_stream::StreamExt;

use crate::capability::{
    outside,
    schedule::Planner,
    source::{Outlet, Parts, Source, SourceError, readiness, values},
};
use journal::time::Timestamp;

/// Size of a read from the alarm: its number of expirations.
const COUNT_BYTES: usize = 8;

/// The source.
#[derive(Debug)]
pub struct Scheduled {
    settings: watch::Receiver<Arc<outside::Settings>>,
    alive: Timestamp,
    wall: fn() -> Timestamp,
    zone: fn() -> TimeZone,
}

impl Scheduled {
    /// Waits for the schedules of the settings, by the wall clock and the user's zone.
    pub fn new(parts: &Parts<'_>) -> Self {
        let Parts { inputs, alive, wall, zone, .. } = *parts;
        Self { settings: inputs.settings.subscribe(), alive, wall, zone }
    }
}

impl Source for Scheduled {
    const NAME: &'static str = "schedule";

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut values = values(&self.settings);
        let mut settings = values.next().await.ok_or(SourceError::Ended)?;
        let mut planner = Planner::new(self.alive);
        let mut alarm = None;
        let failed = |error| SourceError::System("no alarm can be set", error);
        loop {
            let schedules = &settings.schedule.list;
            // To find the zone lists the files of all zones: a tenth of a start.
            let zone = if schedules.is_empty() { TimeZone::UTC } else { (self.zone)() };
            let plan = planner.plan(schedules, (self.wall)(), &zone);
            for due in &plan.due {
                out.publish(due.event((out.clock)())).await;
            }
            alarm = match (plan.next, alarm) {
                (None, _) => None,
                (Some(at), before) => {
                    let alarm = before.map_or_else(Alarm::new, Ok).map_err(failed)?;
                    alarm.set(at).map_err(failed)?;
                    Some(alarm)
                }
            };
            tokio::select! {
                newest = values.next() => settings = newest.ok_or(SourceError::Ended)?,
                gone_off = wait(alarm.as_ref()) => gone_off.map_err(failed)?,
            }
        }
    }
}

async fn wait(alarm: Option<&Alarm>) -> io::Result<()> {
    match alarm {
        Some(alarm) => alarm.wait().await,
        None => pending().await,
    }
}

/// An alarm at a time of the wall clock; also expires when the clock is set.
#[derive(Debug)]
struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(readiness(timerfd_create(TimerfdClockId::Realtime, flags)?)?))
    }

    fn set(&self, at: Timestamp) -> io::Result<()> {
        let (seconds, millis) = (at.as_millis() / 1_000, at.as_millis() % 1_000);
        let at = Timespec {
            tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(millis * 1_000_000).unwrap_or_default(),
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(self.0.get_ref(), flags, &Itimerspec { it_interval: once, it_value: at })?;
        Ok(())
    }

    async fn wait(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut count = [0; COUNT_BYTES];
            match ready.try_io(|inner| rustix::io::read(inner.get_ref(), &mut count).map_err(io::Error::from))
            {
                Ok(Ok(_)) => return Ok(()),
                // The clock was set.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => {
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
