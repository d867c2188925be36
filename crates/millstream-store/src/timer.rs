//! Waiting for less than a millisecond.
//!
//! Timers of tokio have steps of a millisecond and round up, so a wait of 100 microseconds takes
//! one to two milliseconds: more than the rest of a micro-batch. On Linux a [`Timer`] is a
//! `timerfd`, which wakes the thread that waits for sockets anyway, some ten microseconds after its
//! moment. Elsewhere, and where the clock is a test's, it sleeps as everything else does.

use std::time::Duration;

use crate::env::Env;

/// A timer that one task waits with, again and again.
pub struct Timer {
    env: Env,
    /// What the operating system wakes with; made at the first wait, on the runtime of that moment.
    #[cfg(target_os = "linux")]
    alarm: Option<linux::Alarm>,
}

impl Timer {
    /// A timer by the clock of `env`.
    pub fn new(env: Env) -> Self {
        Self {
            env,
            #[cfg(target_os = "linux")]
            alarm: None,
        }
    }

    /// Completes `duration` from now. May be given up before that.
    ///
    /// # Panics
    /// On a runtime that does not wait for sockets; those of [`Env`] do.
    pub async fn sleep(&mut self, duration: Duration) {
        #[cfg(target_os = "linux")]
        if self.env.has_real_clock() && self.alarmed(duration).await.is_ok() {
            return;
        }
        self.env.sleep(duration).await;
    }

    /// Errors: the operating system gives no timer, or the runtime that it belonged to has ended.
    #[cfg(target_os = "linux")]
    async fn alarmed(&mut self, duration: Duration) -> std::io::Result<()> {
        let mut alarm = match self.alarm.take() {
            Some(alarm) => alarm,
            None => linux::Alarm::new()?,
        };
        // Not waiting any more keeps it, an error does not: then the next wait makes another.
        alarm.set(duration)?;
        let alarm = self.alarm.insert(alarm);
        let rung = alarm.ring().await;
        if rung.is_err() {
            self.alarm = None;
        }
        rung
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use std::ptr;
    use std::time::Duration;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A `timerfd` (timerfd_create(2)) that the current runtime waits for.
    pub struct Alarm(AsyncFd<OwnedFd>);

    impl Alarm {
        pub fn new() -> io::Result<Self> {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            // SAFETY: a call with two numbers.
            let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: it was just opened, and nothing else has it.
            let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
            // SAFETY: what owns the descriptor moves into it, and closes it when it is dropped.
            let registered = unsafe { AsyncFd::register_with_interest(owned, Interest::READABLE) };
            Ok(Self(registered.map_err(|error| error.into_parts().1)?))
        }

        /// Rings once, `duration` from now, and not at the moment that was set before.
        pub fn set(&mut self, duration: Duration) -> io::Result<()> {
            // No time at all would mean never.
            let duration = duration.max(Duration::from_nanos(1));
            let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let wait = libc::timespec {
                tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: duration.subsec_nanos() as libc::c_long,
            };
            let times = libc::itimerspec { it_interval: never, it_value: wait };
            // SAFETY: an open descriptor, and a value that lives during the call.
            let set = unsafe {
                libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const times, ptr::null_mut())
            };
            if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        }

        /// Waits until it rings.
        pub async fn ring(&mut self) -> io::Result<()> {
            loop {
                let mut ready = self.0.readable().await?;
                // What an earlier wait left behind says that it rang, and reading says that it did
                // not.
                if let Ok(read) = ready.try_io(|descriptor| read(descriptor.get_ref())) {
                    return read;
                }
            }
        }
    }

    fn read(descriptor: &OwnedFd) -> io::Result<()> {
        let mut rings = [0_u8; 8];
        let (to, length) = (rings.as_mut_ptr().cast(), rings.len());
        // SAFETY: an open descriptor, and room for as many bytes as are asked for.
        let count = unsafe { libc::read(descriptor.as_raw_fd(), to, length) };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_as_long_as_it_is_told_to_and_less_beyond_that_than_tokio() {
        let env = Env::real();
        let mut timer = Timer::new(env.clone());
        let (mut beyond, mut beyond_of_tokio) = (Vec::new(), Vec::new());
        for micros in [1, 100, 300, 1_500] {
            let wait = Duration::from_micros(micros);
            for _ in 0..20 {
                let begun = env.monotonic();
                timer.sleep(wait).await;
                let between = env.monotonic();
                env.sleep(wait).await;
                let passed = between - begun;
                assert!(passed >= wait, "{passed:?} of {wait:?}");
                beyond.push(passed - wait);
                beyond_of_tokio.push(env.monotonic() - between - wait);
            }
        }
        beyond.sort();
        beyond_of_tokio.sort();
        let median = beyond.len() / 2;
        assert!(beyond[median] < beyond_of_tokio[median], "{beyond:?}, {beyond_of_tokio:?}");
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_does_not_end_the_next() {
        let env = Env::real();
        let mut timer = Timer::new(env.clone());
        let given_up = tokio::time::timeout(Duration::from_millis(1), async {
            timer.sleep(Duration::from_millis(20)).await;
        });
        assert!(given_up.await.is_err());
        // The first one rings in the meantime.
        std::thread::sleep(Duration::from_millis(30));
        let begun = env.monotonic();
        timer.sleep(Duration::from_millis(10)).await;
        assert!(env.monotonic() - begun >= Duration::from_millis(10));
    }

    #[test]
    fn goes_on_in_another_runtime() {
        let mut timer = Timer::new(Env::real());
        for _ in 0..2 {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(timer.sleep(Duration::from_micros(50)));
            runtime.block_on(timer.sleep(Duration::from_micros(50)));
        }
    }
}
