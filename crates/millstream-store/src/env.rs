//! The one door to time, chance, tasks and threads.
//!
//! Everything that could differ between two runs of the same input enters through an [`Env`] that
//! is handed in, so that a test can move the clock and fix the seed. Other doors (`Instant::now`,
//! `tokio::spawn`, ...) are disallowed by a lint; this file alone may use them.
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;

/// Where the present moment comes from.
pub trait Clock: Send + Sync {
    /// Wall clock, microseconds since the epoch. May jump; use it for stamps, not for durations.
    fn now_us(&self) -> i64;
    /// Time since some fixed moment; never runs backwards. Use it for durations.
    fn monotonic(&self) -> Duration;
    /// Completes `duration` from now.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// True where time passes as the operating system says, so that its timers may be used.
    fn is_real(&self) -> bool {
        false
    }
}

/// Where chance comes from.
pub trait Rng: Send + Sync {
    /// The next 64 random bits. Who sees some of them may compute the others.
    fn next_u64(&self) -> u64;

    /// 128 random bits for a key. In the real world nobody computes them from others.
    fn secret(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }
}

/// Clock, chance and tasks, handed to whatever needs them. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// The runtime with a thread per core, if there was one when this was made.
    cores: Option<tokio::runtime::Handle>,
    /// Where all work is on one thread: how long what may block waits before it begins.
    one_thread: Option<Arc<dyn Fn() -> Duration + Send + Sync>>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}

impl Env {
    /// The world as it is: system clock, seed from the operating system.
    pub fn real() -> Self {
        let keys = RandomState::new();
        let numbers = SeededRng::new(keys.hash_one(0_u8));
        let rng = SystemRng { numbers, keys, secrets: AtomicU64::default() };
        Self::new(Arc::new(SystemClock { start: Instant::now() }), Arc::new(rng))
    }

    /// An environment of the caller's own, for tests and simulation.
    pub fn new(clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        let cores = tokio::runtime::Handle::try_current().ok();
        Self { clock, rng, cores, one_thread: None }
    }

    /// As [`Self::new`], with all work on the thread of the current runtime, so that a simulation
    /// decides the order of everything. What may block there must not wait for anybody; each piece
    /// of it begins after what `wait` gives.
    pub fn on_one_thread(
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        wait: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { one_thread: Some(Arc::new(wait)), ..Self::new(clock, rng) }
    }

    /// Wall clock, microseconds since the epoch.
    pub fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// Wall clock, milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.now_us().div_euclid(1_000)
    }

    /// Time since some fixed moment; never runs backwards.
    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Completes `duration` from now.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }

    /// True where time passes as the operating system says.
    pub fn has_real_clock(&self) -> bool {
        self.clock.is_real()
    }

    /// 64 random bits.
    pub fn random_u64(&self) -> u64 {
        self.rng.next_u64()
    }

    /// A key that nobody can guess, of 32 hexadecimal digits.
    pub fn secret(&self) -> String {
        format!("{:032x}", self.rng.secret())
    }

    /// A random (version 4) UUID.
    pub fn random_uuid(&self) -> uuid::Uuid {
        let bits = (u128::from(self.random_u64()) << 64) | u128::from(self.random_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }

    /// Runs `task` on the current tokio runtime. The name is for logs.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Task { name, handle: tokio::spawn(task) }
    }

    /// Runs `task` on the runtime that was current when this environment was made, whichever
    /// runtime is now: for computing that several cores share.
    pub fn spawn_on_cores<F>(&self, name: &'static str, task: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match &self.cores {
            Some(cores) => Task { name, handle: cores.spawn(task) },
            None => self.spawn(name, task),
        }
    }

    /// Runs `task`, and what it spawns, on one thread of its own. Tasks that mostly wait for each
    /// other hand over at once that way; on several threads every hand-over wakes a thread, and
    /// tokio another one to look for more work.
    pub fn spawn_on_own_thread<F>(&self, name: &'static str, task: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_blocking(name, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the operating system gives a runtime its handles");
            let output = runtime.block_on(task);
            // Blocking work that the task left behind, for example a request to a broker that is
            // away, is not waited for.
            runtime.shutdown_background();
            output
        })
    }

    /// Runs `tasks`, and what they spawn, together on one thread; what blocks gets
    /// [`SHARED_BLOCKING_THREADS`] more at most. For tasks that are so many that a thread for each
    /// would be too many: they wait for each other. Gives their results in the order of the tasks.
    pub fn spawn_on_shared_thread<F>(
        &self,
        name: &'static str,
        tasks: Vec<F>,
    ) -> Task<Vec<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let env = self.clone();
        self.spawn_blocking(name, move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().max_blocking_threads(SHARED_BLOCKING_THREADS);
            let runtime = runtime.thread_stack_size(STACK_BYTES).build();
            let runtime = runtime.expect("the operating system gives a runtime its handles");
            let outputs = runtime.block_on(async {
                let running: Vec<_> = tasks.into_iter().map(|task| env.spawn(name, task)).collect();
                let mut outputs = Vec::with_capacity(running.len());
                for task in running {
                    outputs.push(task.join().await);
                }
                outputs
            });
            runtime.shutdown_background();
            outputs
        })
    }

    /// Runs `work`, which may block, on a thread of tokio's blocking pool.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Task<T> {
        let handle = match &self.one_thread {
            None => tokio::task::spawn_blocking(work),
            Some(wait) => {
                let waiting = self.sleep(wait());
                tokio::spawn(async {
                    waiting.await;
                    work()
                })
            }
        };
        Task { name, handle }
    }

    /// Runs `work`, which may block, on a thread of its own, and waits for it: for the rare caller
    /// that is neither asynchronous nor allowed to block its own thread.
    ///
    /// # Panics
    /// When `work` panicked: the panic is passed on.
    pub fn blocking<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let joined = std::thread::scope(|scope| scope.spawn(work).join());
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Waits for `work` on this thread, which must be one that may block; what `work` needs of a
    /// runtime it gets from the one that was current when this environment was made.
    ///
    /// # Panics
    /// In asynchronous code.
    pub fn block_on_cores<F: Future>(&self, work: F) -> F::Output {
        match &self.cores {
            Some(cores) => cores.block_on(work),
            None => tokio::runtime::Handle::current().block_on(work),
        }
    }

    /// Waits for `work` on this thread, which must be one that may block; what `work` needs of a
    /// runtime it gets from one that does nothing but wait for networks and disks. So it goes on
    /// also while each core computes, or waits for what `work` is about to give.
    ///
    /// # Panics
    /// In asynchronous code.
    pub fn block_on_io<F: Future>(&self, work: F) -> F::Output {
        static IO: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
        let io = IO.get_or_init(|| {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(IO_THREADS).thread_name("io").enable_all();
            runtime.build().expect("the operating system gives a runtime its handles")
        });
        io.block_on(work)
    }

    /// As [`Self::thread`], of low priority: for what may take long and that nobody waits for. On
    /// Linux threads that it starts have the same; elsewhere it is as any other.
    pub fn background_thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Thread {
        self.thread(name, move || {
            // On Linux niceness belongs to a thread, not to the process, so the thread lowers its
            // own.
            lower_priority();
            work();
        })
    }

    /// Waits for `work` on a thread of its own, of low priority: for what takes long, may block,
    /// and nobody waits for.
    pub fn spawn_in_background<F>(&self, name: &'static str, work: F) -> Background
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.one_thread.is_some() {
            let task = self.spawn(name, work);
            return Background { _thread: None, task: Some(task) };
        }
        let env = self.clone();
        let thread = self.background_thread(name, move || env.block_on_cores(work));
        Background { _thread: Some(thread), task: None }
    }

    /// Runs `work` on a thread of its own: for loops that block all their life.
    pub fn thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Thread {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        Thread { handle: Some(spawned.expect("the operating system can start a thread")) }
    }

    /// Runs `work` on a thread of its own that nobody waits for: for a call that may never come
    /// back.
    ///
    /// # Errors
    /// The operating system has no thread, as where too many calls did not come back.
    pub fn detached_thread(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
    }
}

/// Threads for what blocks, of tasks that share one otherwise.
pub const SHARED_BLOCKING_THREADS: usize = 12;

/// Threads that wait for networks: what arrives is decrypted there, some gigabytes a second each.
const IO_THREADS: usize = 2;

/// The stack of threads that plan and run queries, bytes: planning goes as deep as an expression
/// has terms, some 25 KB each. Only what is used takes memory.
pub const STACK_BYTES: usize = 256 << 20;

/// Runs `work` on a thread with a stack of [`STACK_BYTES`], and waits for it.
///
/// # Panics
/// When `work` panicked: the panic is passed on.
pub fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let joined = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK_BYTES);
        let spawned = thread.spawn_scoped(scope, work);
        spawned.expect("the operating system can start a thread").join()
    });
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Lets every thread of ordinary priority go before this one.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn lower_priority() {
    const NICENESS: libc::c_int = 15;
    // SAFETY: a call with three numbers. Of threads, 0 is the calling one; a refusal changes
    // nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

/// A running task. Awaiting it gives its result; dropping it lets it go on.
pub struct Task<T> {
    name: &'static str,
    handle: tokio::task::JoinHandle<T>,
}

impl<T> Task<T> {
    /// The task's result.
    ///
    /// # Panics
    /// When the task panicked or was aborted: the panic is passed on.
    pub async fn join(self) -> T {
        match self.handle.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                // A panic in a task is a bug; it surfaces where the task is awaited instead of
                // being lost.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => panic!("task {} was aborted and then awaited", self.name),
            },
        }
    }

    /// Asks the task to stop at its next await.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Asks the task to stop at its next await, and waits until it has let go of what it holds.
    ///
    /// # Panics
    /// When the task panicked: the panic is passed on.
    pub async fn stop(self) {
        self.handle.abort();
        if let Err(error) = self.handle.await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// True once the task has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

/// Work in the background. Dropping this waits for its end, or ends it in a simulation.
pub struct Background {
    _thread: Option<Thread>,
    task: Option<Task<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// A running thread, joined when dropped.
pub struct Thread {
    handle: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A panic there was already reported by the hook; a second one here would abort.
            let _ = handle.join();
        }
    }
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now_us(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn is_real(&self) -> bool {
        true
    }
}

/// Chance in the real world.
struct SystemRng {
    numbers: SeededRng,
    /// 128 bits of the operating system, under which SipHash makes secrets of a counter: it is a
    /// pseudorandom function (Aumasson and Bernstein, 2012).
    keys: RandomState,
    secrets: AtomicU64,
}

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        self.numbers.next_u64()
    }

    fn secret(&self) -> u128 {
        let number = self.secrets.fetch_add(1, Ordering::Relaxed);
        let half = |half: u64| u128::from(self.keys.hash_one((half, number)));
        (half(1) << 64) | half(2)
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): a counter through a mixing function. Enough for names
/// and jitter, and the same seed gives the same draws.
pub struct SeededRng {
    state: AtomicU64,
}

impl SeededRng {
    /// A generator whose draws follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        // One atomic addition, so that threads that draw at the same time never get the same
        // number.
        let mut z = self.state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
