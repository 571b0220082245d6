//! What the plots of a run have in common.

use crate::disk::Model;
use crate::nbw::names::{ADAPTIVE, BASELINE, STATIC};
use crate::plot::{Kind, Mark, Panel};

/// The disks that have panels.
pub const DISKS: [Model; 2] = [Model::Hdd, Model::Ssd];

/// The contestants that are drawn over time in plots of the disk.
pub const OVER_TIME: [&str; 3] = [BASELINE, STATIC, ADAPTIVE];

/// A panel with linear axes.
pub fn panel(
    title: &str,
    y_title: &str,
    kind: Kind,
    workloads: &[&str],
    marks: Vec<Vec<Option<Mark>>>,
) -> Panel {
    Panel {
        title: title.to_owned(),
        y_title: y_title.to_owned(),
        kind,
        categories: workloads.iter().map(|name| name.to_uppercase()).collect(),
        marks,
        ..Panel::default()
    }
}
