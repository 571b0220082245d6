//! The tree against a model of what programs see and a model of home.

mod cases;
mod crash;
mod live;
mod model;
