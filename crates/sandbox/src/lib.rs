//! Confines: namespaces, seccomp, Landlock.
