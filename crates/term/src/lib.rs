//! Mediates the terminal: pty, input, filter.
