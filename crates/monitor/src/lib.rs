//! Conducts: one effect's whole life.
