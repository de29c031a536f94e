//! Stores that wrap stores.
