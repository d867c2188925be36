//! How the allocator keeps memory that a query has given back, and gives back what it keeps.
//!
//! Queries allocate columns of some megabytes, let go of them and allocate them again. By default
//! glibc gives such pieces back to the kernel each time, which then has to clear them anew: over
//! TPC-H that was up to half of a query's processor time. So a process that runs queries keeps
//! some of it.

/// Pieces below this are not mapped one by one. glibc takes no more than 32 MiB.
const MAP_FROM_BYTES: i32 = 32 << 20;
/// What an arena keeps at its end, unused, at most.
const KEEP_BYTES: i32 = 256 << 20;
/// By what an arena grows.
const GROW_BYTES: i32 = 16 << 20;

/// The kernel's pages on the platforms that there are releases for.
const PAGE_BYTES: u64 = 4_096;

/// Has the allocator keep memory between queries. Other allocators than glibc's are left as they
/// are.
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    set(&[
        (libc::M_MMAP_THRESHOLD, MAP_FROM_BYTES),
        (libc::M_TRIM_THRESHOLD, KEEP_BYTES),
        (libc::M_TOP_PAD, GROW_BYTES),
    ]);
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn set(parameters: &[(i32, i32)]) {
    for (parameter, value) in parameters {
        // SAFETY: mallopt changes numbers of the allocator under its lock. A value that it does
        // not take changes nothing.
        unsafe { libc::mallopt(*parameter, *value) };
    }
}

/// The memory that this process has, in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = counts.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

/// Gives what is free in the allocator back to the kernel. Takes milliseconds for each gigabyte,
/// and who allocates from the same arena waits.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: malloc_trim takes the allocator's locks by itself and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_is_given_back() {
        let pieces: Vec<Vec<u8>> = (0..4_000).map(|at| vec![at as u8; 16 << 10]).collect();
        let full = resident_bytes().expect("Linux tells it");
        // The last piece stays, so that the allocator does not give the others back by itself.
        drop(pieces.into_iter().rev().skip(1).collect::<Vec<_>>());
        give_back();
        let after = resident_bytes().expect("Linux tells it");
        assert!(after + (32 << 20) < full, "{full} before, {after} after");
    }
}
