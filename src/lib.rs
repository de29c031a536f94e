//! synod
