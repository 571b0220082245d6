//! The namespace against a model that is a plain list: any sequence of lookups, forgets, pins and moves.

use std::collections::HashMap;

use proptest::prelude::*;
use weir_names::{Forgot, Identity, Namespace, NodeId, Place, Way};

#[derive(Clone, Debug)]
enum Step {
    Count { inode: u64, version: u64, name: u8 },
    Forget { of: usize, lookups: u64 },
    Pin { of: usize },
    Unpin { of: usize },
    Move { of: usize, name: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (2..9_u64, 0..3_u64, any::<u8>())
            .prop_map(|(inode, version, name)| Step::Count { inode, version, name }),
        4 => (0..16_usize, 1..4_u64).prop_map(|(of, lookups)| Step::Forget { of, lookups }),
        1 => (0..16_usize).prop_map(|of| Step::Pin { of }),
        2 => (0..16_usize).prop_map(|of| Step::Unpin { of }),
        1 => (0..16_usize, any::<u8>()).prop_map(|(of, name)| Step::Move { of, name }),
    ]
}

#[derive(Clone, Debug)]
struct Known {
    node: NodeId,
    lookups: u64,
    pinned: bool,
    way: Way,
}

fn place(name: u8) -> Way {
    let name = format!("n{name}");
    Way::Place(Place::new(NodeId::ROOT, name.as_bytes()).expect("it is one name"))
}

fn check(steps: Vec<Step>) {
    let root = Identity { device: 3, inode: 1, version: 0 };
    let mut names = Namespace::new(root);
    let mut model: HashMap<Identity, Known> = HashMap::new();
    let mut seen: Vec<Identity> = Vec::new();
    for step in steps {
        let pick =
            |of: usize, seen: &Vec<Identity>| (!seen.is_empty()).then(|| seen[of % seen.len()]);
        match step {
            Step::Count { inode, version, name } => {
                let identity = Identity { device: 3, inode, version };
                let node = names.count(identity, place(name));
                seen.push(identity);
                let known = model.entry(identity).or_insert(Known {
                    node,
                    lookups: 0,
                    pinned: false,
                    way: place(name),
                });
                assert_eq!(known.node, node, "a known inode keeps its number");
                known.lookups += 1;
                known.way = place(name);
            }
            Step::Forget { of, lookups } => {
                let Some(identity) = pick(of, &seen) else { continue };
                let Some(known) = model.get_mut(&identity) else { continue };
                known.lookups = known.lookups.saturating_sub(lookups);
                let expected = match (known.lookups, known.pinned) {
                    (0, false) => Forgot::Gone,
                    (0, true) => Forgot::Pinned,
                    _ => Forgot::Known,
                };
                let node = known.node;
                if expected == Forgot::Gone {
                    model.remove(&identity);
                }
                assert_eq!(names.forget(node, lookups), expected);
            }
            Step::Pin { of } => {
                let Some(known) = pick(of, &seen).and_then(|of| model.get_mut(&of)) else {
                    continue;
                };
                known.pinned = true;
                names.pin(known.node);
            }
            Step::Unpin { of } => {
                let Some(identity) = pick(of, &seen) else { continue };
                let Some(known) = model.get_mut(&identity) else { continue };
                known.pinned = false;
                let (node, gone) = (known.node, known.lookups == 0);
                if gone {
                    model.remove(&identity);
                }
                assert_eq!(names.unpin(node), gone);
            }
            Step::Move { of, name } => {
                let Some(known) = pick(of, &seen).and_then(|of| model.get_mut(&of)) else {
                    continue;
                };
                known.way = place(name);
                names.moved(known.node, place(name));
            }
        }
        assert_eq!(names.len(), model.len() + 1, "the root, and what the kernel or a pin keeps");
        let mut numbers: Vec<NodeId> = model.values().map(|known| known.node).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), model.len(), "no two nodes have one number");
        for (identity, known) in &model {
            assert_eq!(names.find(identity), Some(known.node));
            assert_eq!(names.identity(known.node), Some(*identity));
            assert_eq!(names.lookups(known.node), known.lookups);
            assert_eq!(names.way(known.node), Some(&known.way));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_namespace_is_what_a_list_of_nodes_would_be(steps in prop::collection::vec(step(), 1..80)) {
        check(steps);
    }
}
