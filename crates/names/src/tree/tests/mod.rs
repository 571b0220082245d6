//! The tree against a model of what programs see and a model of home.

mod api;
mod cases;
mod crash;
mod live;
mod model;
mod others;
mod reports;
