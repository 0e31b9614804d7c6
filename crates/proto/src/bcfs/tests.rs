//! The service's ends, its router, and trees of routers.

mod bed;
mod challenges;
mod ends;
mod healing;
mod hostile;
mod loss;
mod model;
mod relay;
mod tree;
