//! What a thread allocates while it reads an input.
//!
//! Whatever test binary uses this crate has this allocator, the system's with two counters a
//! thread. Threads that a target starts are not counted.

#![allow(unsafe_code)] // an allocator has no safe interface

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Beyond this an allocation is refused, which ends the process before the machine has no memory.
const REFUSED_BYTES: isize = 3 << 30;

struct Meter {
    is_on: Cell<bool>,
    live: Cell<isize>,
    peak: Cell<isize>,
}

thread_local! {
    static METER: Meter = const {
        Meter { is_on: Cell::new(false), live: Cell::new(0), peak: Cell::new(0) }
    };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts `bytes` more; false if that is too much.
fn count(bytes: isize) -> bool {
    let counted = METER.try_with(|meter| {
        if !meter.is_on.get() {
            return true;
        }
        let live = meter.live.get().saturating_add(bytes);
        if live > REFUSED_BYTES {
            return false;
        }
        meter.live.set(live);
        meter.peak.set(meter.peak.get().max(live));
        true
    });
    counted.unwrap_or(true)
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: everything is passed on to the system's allocator, or refused.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(signed(layout.size())) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !count(signed(layout.size())) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !count(signed(bytes) - signed(layout.size())) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// The result of `run`, and the most bytes that it had allocated at once in this thread.
pub fn metered<T>(run: impl FnOnce() -> T) -> (T, usize) {
    METER.with(|meter| {
        meter.live.set(0);
        meter.peak.set(0);
        meter.is_on.set(true);
        let result = run();
        meter.is_on.set(false);
        (result, usize::try_from(meter.peak.get()).unwrap_or(0))
    })
}
