//! Memory that is asked for before it is needed, so that it comes while something else is done.

/// Brings what stands at a place into the caches. Elsewhere than on x86-64 it comes when it is needed.
#[inline(always)]
pub(crate) fn fetch<T>(all: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(one) = all.get(at) {
        safe_arch::prefetch_t0(one);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (all, at);
}
