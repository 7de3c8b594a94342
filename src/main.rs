//! Reads the command line, runs the command and picks the exit code; and says whose memory it all lives in.

use std::process::ExitCode;

/// Of all memory, librdkafka's too (the feature `override`): records are allocated on one thread and freed on another, over
/// which glibc's allocator makes the threads wait for one another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` in mimalloc's `mi_option_t`, which its crate does not name: for how many milliseconds freed memory
/// is kept for use, ten times as long where it is a larger piece.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> ExitCode {
    give_memory_back_soon();
    tailpost::cli::main()
}

/// With the default, 10 ms, more of a backlog's memory stays ours. A value from the environment (`MIMALLOC_PURGE_DELAY`) counts.
#[expect(unsafe_code, reason = "the allocator's crate has no other way to set an option")]
fn give_memory_back_soon() {
    // SAFETY: sets a number of the allocator's own, which knows options by such numbers and ignores others.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, 1) }
}
