//! How the allocator keeps memory that a query has given back.
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
