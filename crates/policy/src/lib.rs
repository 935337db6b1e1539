//! Reads policies: kairos.toml and Cedar rules.
