//! The pages whose examples are run.

#[doc = include_str!("../docs/guide.md")]
mod guide {}
#[doc = include_str!("../docs/recipes.md")]
mod recipes {}
